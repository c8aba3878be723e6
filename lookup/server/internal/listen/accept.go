package listen

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/internal/ctxerr"

	"github.com/hitline/hitline/lookup/server/internal/sockets"
)

// BacklogTimeout bounds how long connections that were already in the backlog are accepted after Stop.
const BacklogTimeout = time.Second

// Handler takes what is accepted. Several goroutines call it.
type Handler interface {
	// Accept takes a connection of the socket at this position of the list that New was given.
	Accept(socket int, conn net.Conn)
	// Fail reports an error that keeps connections from being accepted or served at an address.
	Fail(what, address string, err error)
}

// Acceptor accepts the connections of sockets until Stop, on a goroutine for each.
type Acceptor struct {
	sockets    []*Socket
	handler    Handler
	stopping   chan struct{} // closed by Stop
	stopOnce   sync.Once
	goroutines sync.WaitGroup
}

// New returns what accepts the connections of sockets, which it closes in the end, for a handler.
func New(sockets []*Socket, handler Handler) *Acceptor {
	return &Acceptor{sockets: sockets, handler: handler, stopping: make(chan struct{})}
}

// Start begins to accept.
func (a *Acceptor) Start() {
	for i := range a.sockets {
		a.goroutines.Go(func() { a.accept(i) })
	}
}

// Stop stops listening. Connections in the kernel's backlog are still accepted, as their requests may have arrived, unless
// somebody else holds the socket open.
func (a *Acceptor) Stop() {
	a.stopOnce.Do(func() {
		for _, s := range a.sockets {
			_ = s.SetDeadline(ctxerr.LongAgo) // makes Accept return; fails if it is closed
		}
		close(a.stopping)
	})
}

// Stopping returns a channel that Stop closes.
func (a *Acceptor) Stopping() <-chan struct{} { return a.stopping }

// Wait waits until everything is accepted, and the sockets are closed.
func (a *Acceptor) Wait() { a.goroutines.Wait() }

// accept accepts connections until Stop, then closes the socket. Without descriptors or
// memory it backs off, and connections wait in the backlog.
func (a *Acceptor) accept(i int) {
	s := a.sockets[i]
	defer func() { _ = s.Close() }()
	backoff := minBackoff
	for {
		conn, err := s.Accept()
		switch {
		case err == nil:
			backoff = minBackoff
			a.hand(i, conn)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded): // set by Stop
			<-a.stopping
			s.unlink() // first, so that no further connection finds the socket
			if !s.given {
				a.acceptBacklog(i)
			}
			return
		}
		a.handler.Fail("cannot accept connections", s.Address, err)
		a.pause(backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// acceptBacklog accepts the connections in the backlog.
func (a *Acceptor) acceptBacklog(i int) {
	s := a.sockets[i]
	if s.SetDeadline(time.Now().Add(BacklogTimeout)) != nil {
		return
	}
	for s.hasPending() {
		conn, err := s.Accept()
		if err != nil {
			return
		}
		a.hand(i, conn)
	}
}

// hand gives a connection to the handler. An IPv4 peer has the same address for a socket of both families as for one of
// IPv4.
func (a *Acceptor) hand(i int, conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		unmap(tcp.RemoteAddr().(*net.TCPAddr))
	}
	a.handler.Accept(i, conn)
}

func unmap(peer *net.TCPAddr) {
	if ip := peer.IP.To4(); ip != nil {
		peer.IP = ip
	}
}

// hasPending reports whether a connection waits to be accepted.
func (s *Socket) hasPending() bool {
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	pending := false
	_ = raw.Control(func(fd uintptr) { pending = sockets.IsReadable(int(fd)) })
	return pending
}

// The backoff while there are no descriptors.
const minBackoff, maxBackoff = 5 * time.Millisecond, time.Second

// pause waits for d. It returns false if Stop is called before.
func (a *Acceptor) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-a.stopping:
		return false
	}
}

// AwaitDescriptor waits until a second descriptor can be had for a connection, or until Stop. Other errors are left to who
// takes it.
func (a *Acceptor) AwaitDescriptor(address string, conn net.Conn) {
	_ = a.WithDescriptors(address, time.Time{}, func() error { return tryDescriptor(conn) })
}

// WithDescriptors calls f, again with a backoff while there are no descriptors for it: until end if that is not zero, or
// until Stop. It returns the last error of f.
func (a *Acceptor) WithDescriptors(address string, end time.Time, f func() error) error {
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := f()
		if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) || !end.IsZero() && time.Now().After(end) {
			return err
		}
		a.handler.Fail("cannot serve a connection", address, err)
		if !a.pause(backoff) {
			return err
		}
	}
}
