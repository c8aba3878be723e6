package server

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hitline/hitline/internal/cpushare"
	"golang.org/x/sys/unix"
)

// tlsTransport is the TCP connection below a tls.Conn. It does three things. A handshake holds a
// processor while it computes but not while it waits. Later reads do not wait: see readable.
// Writes end if the peer reads nothing for a time.
type tlsTransport struct {
	*net.TCPConn
	raw       syscall.RawConn
	listener  *listener
	settings  *Settings               // those of the handshake
	limits    *atomic.Pointer[Limits] // of the server
	handshake *cpushare.Claim         // nil after it
	received  atomic.Bool             // a byte has arrived

	fd  int                       // valid in readable only
	end atomic.Pointer[time.Time] // when writes end in any case; nil: not known yet
}

// errWouldBlock ends a read that would wait. package tls takes reads up again only after an error
// that is a temporary net.Error, as this one is.
var errWouldBlock = os.ErrDeadlineExceeded

// Read implements net.Conn for package tls.
func (t *tlsTransport) Read(p []byte) (n int, err error) {
	if t.handshake == nil {
		return readNow(t.fd, p)
	}
	t.handshake.Release()
	n, err = t.TCPConn.Read(p)
	if !t.handshake.Acquire() {
		return n, os.ErrDeadlineExceeded
	}
	if n > 0 {
		t.received.Store(true)
	}
	return n, err
}

// readNow reads what has arrived. It returns errWouldBlock if nothing has, and io.EOF at the end.
func readNow(fd int, p []byte) (int, error) {
	for {
		switch n, err := unix.Read(fd, p); {
		case err == nil && n == 0 && len(p) > 0:
			return 0, io.EOF
		case err == nil:
			return n, nil
		case errors.Is(err, unix.EAGAIN):
			return 0, errWouldBlock
		case !errors.Is(err, unix.EINTR):
			return 0, os.NewSyscallError("read", err)
		}
	}
}

// readable calls read until it returns something else than errWouldBlock, each time when bytes
// have arrived. In read the tls.Conn may be read from.
func (t *tlsTransport) readable(read func() error) error {
	var result error
	err := t.raw.Read(func(fd uintptr) bool {
		t.fd = int(fd)
		result = read()
		return !errors.Is(result, errWouldBlock)
	})
	if err != nil {
		return err
	}
	return result
}

// Write implements net.Conn for package tls.
func (t *tlsTransport) Write(p []byte) (n int, err error) {
	if t.handshake != nil {
		t.handshake.Release() // after what it writes a handshake reads, or ends
		return t.TCPConn.Write(p)
	}
	for {
		t.extend()
		m, err := t.TCPConn.Write(p[n:])
		n += m
		if m == 0 || n == len(p) || !errors.Is(err, os.ErrDeadlineExceeded) || t.end.Load() != nil {
			return n, err
		}
	}
}

// extend sets the write deadline to limits.write_timeout from now, but not beyond the end.
func (t *tlsTransport) extend() {
	for {
		end := t.end.Load()
		deadline := time.Now().Add(t.limits.Load().WriteTimeout)
		if end != nil && deadline.After(*end) {
			deadline = *end
		}
		_ = t.SetWriteDeadline(deadline) // fails if it is closed, as the write then does
		if t.end.Load() == end {
			return
		}
	}
}

// endWrites makes all writes end by a time. It does not wait.
func (t *tlsTransport) endWrites(at time.Time) {
	t.end.Store(&at)
	_ = t.SetWriteDeadline(at) // it may be closed
}

// awaitWritable waits until the peer has read enough for a record to be written without a wait,
// so that no buffer is held meanwhile. The wait ends as that of Write does.
func (t *tlsTransport) awaitWritable() error {
	for {
		before := t.unsent()
		t.extend()
		err := t.raw.Write(isWritable)
		if !errors.Is(err, os.ErrDeadlineExceeded) || t.end.Load() != nil || t.unsent() >= before {
			return err
		}
	}
}

// isWritable reports whether a large part of a socket's buffer is free.
func isWritable(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
	return err == nil && n > 0
}

// unsent returns how many bytes the kernel keeps for the peer. It may be called at any time.
func (t *tlsTransport) unsent() (n int64) {
	_ = t.raw.Control(func(fd uintptr) { n = unacknowledged(int(fd)) }) // fails if it is closed
	return n
}

// hasUnread reports whether bytes have arrived that were not read. It may be called at any time.
func (t *tlsTransport) hasUnread() (unread bool) {
	_ = t.raw.Control(func(fd uintptr) { unread = hasUnread(int(fd)) }) // fails if it is closed
	return unread
}

// discard reads what arrives, until the end of the stream or the read deadline. Each read checks that,
// as a peer may send without a pause.
func (t *tlsTransport) discard() {
	for {
		var err error
		ended := t.raw.Read(func(fd uintptr) bool {
			buf := readBuffers.Get().(*[readOnBuffer]byte)
			defer readBuffers.Put(buf)
			_, err = readNow(int(fd), buf[:])
			return !errors.Is(err, errWouldBlock)
		})
		if ended != nil || err != nil {
			return
		}
	}
}
