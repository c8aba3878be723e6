package server

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tlsConn is a connection of a tls:// listener. gnet has no TLS, so goroutines copy between the
// tls.Conn and one end of a pair of unix sockets, and an event loop serves the other end as it
// serves any connection. Turns, limits and timeouts are the same.
//
// One goroutine does the handshake. Then two copy, one each way. None holds a buffer while it
// waits: an idle connection has none, and one whose peer or session is slow has none either.
//
// The end of one side ends the other after all bytes before it. A session that has ended leaves
// its replies in the pair: they are sent, then a close_notify, within flushTimeout. The peer has
// lingerTimeout to close, as closing with unread bytes would make the kernel drop the replies.
type tlsConn struct {
	tlsTransport
	tls   *tls.Conn
	peer  net.Addr
	inner *net.UnixConn // this end of the pair, nil in the handshake

	session atomic.Pointer[session] // nil until OnOpen
	moving  atomic.Bool             // it has bytes of the peer that are not in the pair yet
	flushed atomic.Bool             // everything is sent that will be
	copying atomic.Int32            // goroutines that copy
}

const (
	// flushTimeout bounds how long the replies of an ended session are sent. The pair has a few
	// hundred KiB of them at most.
	flushTimeout = 5 * time.Second
	// lingerTimeout is how long a peer has to close after the close_notify.
	lingerTimeout = time.Second
	// recordSize is the most that one TLS record holds. More are not written at once: the kernel
	// takes one without a wait if it takes any byte.
	recordSize = 16 << 10
)

// recordBuffers holds the buffers of replies. Many may be held, by peers that do not read.
var recordBuffers = sync.Pool{New: func() any { return new([recordSize]byte) }}

// copyIn copies what the peer sends to the session, up to the end of either.
func (c *tlsConn) copyIn() {
	inner, err := c.inner.SyscallConn()
	for err == nil {
		err = c.moveIn(inner)
		c.moving.Store(false)
	}
	if errors.Is(err, unix.ECONNRESET) { // nobody reads its replies
		_ = c.inner.Close()
	}
	_ = c.inner.CloseWrite() // the session has the end after all bytes; it may have ended before
	c.discard()
	if c.raw.Read(func(fd uintptr) bool { return isBroken(int(fd)) }) == nil { // a reset after its end
		_ = c.inner.Close()
	}
}

// maxInPair is how many bytes may be in the pair when more are written. A further readBuffer of
// them fits in, as Linux takes 208 KiB, with what it adds to each write. So the goroutine decrypts
// while the event loop serves what came before.
const maxInPair = 96 << 10

// awaitRoom waits until the pair takes a readBuffer of bytes without a wait.
func awaitRoom(inner syscall.RawConn) error {
	return inner.Write(func(fd uintptr) bool { return unacknowledged(int(fd)) <= maxInPair || isWritable(fd) })
}

// moveIn waits for bytes of the peer and writes them to the pair. It returns an error at the end
// of either.
func (c *tlsConn) moveIn(inner syscall.RawConn) error {
	if err := awaitRoom(inner); err != nil { // its event loop may be late
		return err
	}
	var buf *[readOnBuffer]byte
	n := 0
	err := c.readable(func() (err error) {
		c.moving.Store(true)
		buf = readBuffers.Get().(*[readOnBuffer]byte)
		for n < len(buf) && err == nil {
			var m int
			m, err = c.tls.Read(buf[n:])
			n += m
		}
		if n > 0 && errors.Is(err, errWouldBlock) {
			return nil
		}
		if n == 0 {
			readBuffers.Put(buf)
			buf = nil
			c.moving.Store(false)
		}
		return err
	})
	if buf == nil {
		return err
	}
	defer readBuffers.Put(buf)
	if _, failed := c.inner.Write(buf[:n]); failed != nil {
		return failed
	}
	return err
}

// copyOut copies the replies of the session to the peer, up to the end of either.
func (c *tlsConn) copyOut() {
	inner, err := c.inner.SyscallConn()
	for err == nil {
		err = c.moveOut(inner)
	}
	end := time.Now()
	if errors.Is(err, errSessionEnded) {
		_ = c.tls.CloseWrite() // fails if the peer is gone
		end = end.Add(lingerTimeout)
	} else {
		c.cut(err)
	}
	c.linger(end) // copyIn ends by then
	c.flushed.Store(true)
}

// linger ends the stream to the peer, and sets when reading from it ends.
func (c *tlsConn) linger(end time.Time) {
	_ = c.TCPConn.CloseWrite() // fails if the peer is gone
	_ = c.SetReadDeadline(end)
}

// errSessionEnded is the end of a session's replies.
var errSessionEnded = errors.New("the session has ended")

// moveOut waits for replies, and until the peer takes some, and writes them. It returns
// errSessionEnded after the last of them, any other error if they cannot be sent.
func (c *tlsConn) moveOut(inner syscall.RawConn) error {
	if err := c.awaitWritable(); err != nil {
		return err
	}
	var buf *[recordSize]byte
	var n int
	var err error
	closed := inner.Read(func(fd uintptr) bool {
		buf = recordBuffers.Get().(*[recordSize]byte)
		if n, err = readNow(int(fd), buf[:]); n > 0 {
			return true
		}
		recordBuffers.Put(buf)
		buf = nil
		return !errors.Is(err, errWouldBlock)
	})
	if closed != nil {
		return closed
	}
	if buf == nil { // the end, or ECONNRESET if the session has left bytes of the peer unread
		return errSessionEnded
	}
	defer recordBuffers.Put(buf)
	_, err = c.tls.Write(buf[:n])
	return err
}

// cut ends the session, as its replies cannot be sent.
func (c *tlsConn) cut(err error) {
	if s := c.session.Load(); s != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		s.reason.CompareAndSwap(uint32(closedByPeer), uint32(closedWriteTimeout))
	}
	_ = c.inner.Close()
}

// sessionEnded bounds the sending of replies. It is called when the session has ended, on its
// event loop.
func (c *tlsConn) sessionEnded() { c.endWrites(time.Now().Add(flushTimeout)) }

// pending reports whether the connection has bytes of the peer that are not in the pair yet. The
// order matters: bytes move from the socket into the goroutine and on into the pair, where the
// caller looks last. A nil one has none.
func (c *tlsConn) pending() bool { return c != nil && (c.hasUnread() || c.moving.Load()) }

// closeNow closes everything, so that its goroutines end.
func (c *tlsConn) closeNow() {
	_ = c.TCPConn.Close()
	if c.inner != nil {
		_ = c.inner.Close()
	}
}
