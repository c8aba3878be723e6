package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// door accepts the connections of all listeners and hands them to the event loops.
//
// gnet could accept by itself, but an engine of its that runs out of descriptors
// stops, and stopping it is the only way to close its listeners. So the engine is
// gnet's client, which has loops and nothing else.
type door struct {
	server    *Server
	engine    *gnet.Client
	listeners []listener
	closing   chan struct{}
	closed    chan struct{} // accepting is over, and all that came in is with its loop
	entering  chan struct{} // a token for each connection on its way to a loop
	once      sync.Once
	troubles  quiet
}

const (
	// maxEntering bounds the connections on their way to a loop; each takes a
	// second descriptor meanwhile.
	maxEntering = 32
	// enterPatience is how long the next connection waits for the one before it to
	// be with its loop. Loops are chosen by the number of their connections, so
	// this keeps them even; loops that are busy for longer are not waited for.
	enterPatience = time.Millisecond
	// lastCall bounds how long those are let in who were waiting when listening ends:
	// who is turned away may come again at once.
	lastCall = time.Second
)

// visitor is a connection on its way to its loop.
type visitor struct {
	peer   net.Addr
	opened atomic.Bool // OnOpen has seen it, and OnClose will
}

func openDoor(s *Server, engine *gnet.Client, listeners []listener) *door {
	d := &door{
		server: s, engine: engine, listeners: listeners,
		closing: make(chan struct{}), closed: make(chan struct{}), entering: make(chan struct{}, maxEntering),
	}
	var acceptors sync.WaitGroup
	for _, ln := range listeners {
		acceptors.Go(func() { d.accept(ln) })
	}
	go func() {
		defer close(d.closed)
		acceptors.Wait()
		for range maxEntering { // as many tokens as there are: none is under way
			d.entering <- struct{}{}
		}
	}()
	return d
}

// close stops listening and waits, until ctx ends, for those who came before, also
// those who wait in the kernel: their requests may have arrived.
func (d *door) close(ctx context.Context) {
	d.once.Do(func() {
		for _, ln := range d.listeners {
			ln.interrupt()
		}
		close(d.closing)
	})
	select {
	case <-d.closed:
	case <-ctx.Done():
	}
}

// accept takes connections until the door closes, and closes the listener. For want
// of descriptors or memory it waits: those that come meanwhile wait in the kernel.
func (d *door) accept(ln listener) {
	defer func() { _ = ln.Close() }()
	pause := shortestPause
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			pause = shortestPause
			d.admit(conn)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded): // by interrupt
			<-d.closing
			ln.unlink() // first: who comes later finds no socket
			d.acceptLast(ln)
			return
		}
		d.trouble("cannot accept connections", ln.addr, err)
		d.sleep(pause)
		pause = min(2*pause, longestPause)
	}
}

// How long to wait until it is tried again what there were no descriptors for.
const shortestPause, longestPause = 5 * time.Millisecond, time.Second

// sleep waits, but not while the door closes; false says that it does.
func (d *door) sleep(pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-d.closing:
		return false
	}
}

// deadliner is what a listener of package net has beside its interface.
type deadliner interface {
	SetDeadline(t time.Time) error
	syscall.Conn
}

// longAgo as a deadline wakes Accept at once.
var longAgo = time.Unix(1, 0)

// interrupt makes Accept return: with what it is told by a deadline, if it can be.
func (l listener) interrupt() {
	if p, ok := l.Listener.(deadliner); !ok || p.SetDeadline(longAgo) != nil {
		_ = l.Close()
	}
}

// acceptLast takes the connections that wait in the kernel.
func (d *door) acceptLast(ln listener) {
	p := ln.Listener.(deadliner)
	if p.SetDeadline(time.Now().Add(lastCall)) != nil {
		return
	}
	for someoneWaits(p) {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		d.admit(conn)
	}
}

// someoneWaits tells whether a listener has a connection to accept.
func someoneWaits(p deadliner) bool {
	raw, err := p.SyscallConn()
	if err != nil {
		return false
	}
	waits := false
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		waits = err == nil && n > 0
	})
	return waits
}

// trouble counts and tells what keeps connections from being accepted.
func (d *door) trouble(what, addr string, err error) {
	d.server.acceptErrors.Add(1)
	if silent, ok := d.troubles.allow(d.server.peers.now()); ok {
		d.server.cfg.Logger.Error(what, "listen", addr, "error", err, "not_told", silent)
	}
}

// admit lets a connection in, or closes it if there are too many.
func (d *door) admit(conn net.Conn) {
	if !d.server.takePlace() {
		d.server.closed[closedMaxConnections].Add(1)
		d.server.peers.connectionClosed(closedMaxConnections, peerOf(conn), nil)
		_ = conn.Close()
		return
	}
	d.awaitDescriptor(conn)
	if !d.token() {
		d.server.connections.Add(-1)
		d.server.closed[closedDraining].Add(1)
		_ = conn.Close()
		return
	}
	entered := make(chan struct{})
	go func() {
		defer func() { <-d.entering; close(entered) }()
		if err := d.enter(conn); err != nil {
			d.server.connections.Add(-1)
			d.trouble("cannot serve a connection", conn.LocalAddr().String(), err)
		}
	}()
	select {
	case <-entered:
	case <-time.After(enterPatience):
	}
}

// awaitDescriptor returns when there is a descriptor for the second one that a
// connection takes on its way, or the door closes. Without one gnet would turn the
// connection away, and all that come after it.
func (d *door) awaitDescriptor(conn net.Conn) {
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		err := tryDescriptor(conn)
		if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {
			return // with other troubles, enter ends in them
		}
		d.trouble("cannot serve a connection", conn.LocalAddr().String(), err)
		if !d.sleep(pause) {
			return
		}
	}
}

// tryDescriptor duplicates the descriptor of a connection and closes the duplicate.
func tryDescriptor(conn net.Conn) error {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var second int
		if second, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); failed == nil {
			_ = unix.Close(second)
		}
	})
	return errors.Join(err, failed)
}

// token takes a token for a connection on its way. When there is none and the
// server drains, loops that are that busy are spared another connection.
func (d *door) token() bool {
	select {
	case d.entering <- struct{}{}:
		return true
	default:
	}
	select {
	case d.entering <- struct{}{}:
		return true
	case <-d.closing:
		return false
	}
}

// takePlace counts a connection if there is room for it.
func (s *Server) takePlace() bool {
	for {
		n := s.connections.Load()
		if n >= int64(s.cfg.Limits.MaxConnections) {
			return false
		}
		if s.connections.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// enter registers a connection with a loop. gnet duplicates its descriptor and
// closes the connection, in every case.
func (d *door) enter(conn net.Conn) error {
	v := &visitor{peer: peerOf(conn)}
	forgetZones(conn)
	if _, err := d.engine.EnrollContext(conn, v); err != nil {
		return err
	}
	if !v.opened.Load() { // gnet keeps to itself why not
		return fmt.Errorf("%s was not taken by an event loop", v.peer)
	}
	return nil
}

// forgetZones drops the zones of link-local addresses: at the end of a connection
// gnet puts the memory of their names into a pool, and it belongs to package net.
func forgetZones(conn net.Conn) {
	for _, addr := range [...]net.Addr{conn.LocalAddr(), conn.RemoteAddr()} {
		if tcp, ok := addr.(*net.TCPAddr); ok {
			tcp.Zone = ""
		}
	}
}
