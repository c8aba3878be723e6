package tlspair

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/lookup/server/internal/sockets"
)

// transport is the TCP connection below a tls.Conn. It does three things. A handshake holds a
// processor while it computes but not while it waits. Later reads do not wait: see readable.
// Writes end if the peer reads nothing for a time.
type transport struct {
	*net.TCPConn
	raw       syscall.RawConn
	owner     Owner
	handshake *cpushare.Claim // nil after it
	received  atomic.Bool     // a byte has arrived

	fd        int                       // valid in readable only
	writesEnd atomic.Pointer[time.Time] // when writes end in any case; nil: not known yet
}

// Read implements net.Conn for package tls.
func (t *transport) Read(p []byte) (n int, err error) {
	if t.handshake == nil {
		return sockets.ReadNow(t.fd, p)
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

// readable calls read until it returns something else than sockets.ErrWouldBlock, each time when bytes
// have arrived. In read the tls.Conn may be read from.
func (t *transport) readable(read func() error) error {
	var result error
	err := t.raw.Read(func(fd uintptr) bool {
		t.fd = int(fd)
		result = read()
		return !errors.Is(result, sockets.ErrWouldBlock)
	})
	if err != nil {
		return err
	}
	return result
}

// Write implements net.Conn for package tls.
func (t *transport) Write(p []byte) (n int, err error) {
	if t.handshake != nil {
		t.handshake.Release() // after what it writes a handshake reads, or ends
		return t.TCPConn.Write(p)
	}
	for {
		t.extend()
		m, err := t.TCPConn.Write(p[n:])
		n += m
		if m == 0 || n == len(p) || !errors.Is(err, os.ErrDeadlineExceeded) || t.writesEnd.Load() != nil {
			return n, err
		}
	}
}

// extend sets the write deadline to the write timeout from now, but not beyond the end.
func (t *transport) extend() {
	for {
		end := t.writesEnd.Load()
		_, timeout := t.owner.Timeouts()
		deadline := time.Now().Add(timeout)
		if end != nil && deadline.After(*end) {
			deadline = *end
		}
		_ = t.SetWriteDeadline(deadline) // fails if it is closed, as the write then does
		if t.writesEnd.Load() == end {
			return
		}
	}
}

// endWrites makes all writes end by a time. It does not wait.
func (t *transport) endWrites(at time.Time) {
	t.writesEnd.Store(&at)
	_ = t.SetWriteDeadline(at) // it may be closed
}

// awaitWritable waits until the peer has read enough for a record to be written without a wait,
// so that no buffer is held meanwhile. The wait ends as that of Write does.
func (t *transport) awaitWritable() error {
	for {
		before := t.unsent()
		t.extend()
		err := t.raw.Write(isWritable)
		if !errors.Is(err, os.ErrDeadlineExceeded) || t.writesEnd.Load() != nil || t.unsent() >= before {
			return err
		}
	}
}

func isWritable(fd uintptr) bool { return sockets.IsWritable(int(fd)) }

// unsent returns how many bytes the kernel keeps for the peer. It may be called at any time.
func (t *transport) unsent() (n int64) {
	_ = t.raw.Control(func(fd uintptr) { n = sockets.Unacknowledged(int(fd)) }) // fails if it is closed
	return n
}

// hasUnread reports whether bytes have arrived that were not read. It may be called at any time.
func (t *transport) hasUnread() (unread bool) {
	_ = t.raw.Control(func(fd uintptr) { unread = sockets.HasUnread(int(fd)) }) // fails if it is closed
	return unread
}

// discard reads what arrives, until the end of the stream or the read deadline. Each read checks that,
// as a peer may send without a pause.
func (t *transport) discard() {
	for {
		var err error
		ended := t.raw.Read(func(fd uintptr) bool {
			buf := readBuffers.Get().(*[readSize]byte)
			defer readBuffers.Put(buf)
			_, err = sockets.ReadNow(int(fd), buf[:])
			return !errors.Is(err, sockets.ErrWouldBlock)
		})
		if ended != nil || err != nil {
			return
		}
	}
}
