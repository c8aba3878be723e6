package tlspair

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

	"github.com/hitline/hitline/lookup/server/internal/sockets"
)

// Conn is a TLS connection, and this end of its pair. All methods may be called at any time.
//
// One goroutine does the handshake. Then two copy, one each way. None holds a buffer while it
// waits: an idle connection has none, and one whose peer or session is slow has none either.
//
// The end of one side ends the other after all bytes before it. An owner that has ended leaves
// its replies in the pair: they are sent, then a close_notify, within FlushTimeout. The peer has
// lingerTimeout to close, as closing with unread bytes would make the kernel drop the replies.
type Conn struct {
	transport
	tls   *tls.Conn
	inner *net.UnixConn // this end of the pair, nil in the handshake

	moving  atomic.Bool  // it has bytes of the peer that are not in the pair yet
	flushed atomic.Bool  // everything is sent that will be
	copying atomic.Int32 // goroutines that copy
}

const (
	// FlushTimeout bounds how long the replies of an ended owner are sent. The pair has a few
	// hundred KiB of them at most.
	FlushTimeout = 5 * time.Second
	// lingerTimeout is how long a peer has to close after the close_notify.
	lingerTimeout = time.Second
	// recordSize is the most that one TLS record holds. More are not written at once: the kernel
	// takes one without a wait if it takes any byte.
	recordSize = 16 << 10
	// readSize is how many bytes of the peer are moved at a time at most.
	readSize = 64 << 10
)

// readBuffers holds the buffers of what peers send.
var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// recordBuffers holds the buffers of replies. Many may be held, by peers that do not read.
var recordBuffers = sync.Pool{New: func() any { return new([recordSize]byte) }}

// copyIn copies what the peer sends to the owner, up to the end of either.
func (c *Conn) copyIn() {
	inner, err := c.inner.SyscallConn()
	for err == nil {
		err = c.moveIn(inner)
		c.moving.Store(false)
	}
	if errors.Is(err, unix.ECONNRESET) { // nobody reads its replies
		_ = c.inner.Close()
	}
	_ = c.inner.CloseWrite() // the owner has the end after all bytes; it may have ended before
	c.discard()
	if c.raw.Read(func(fd uintptr) bool { return sockets.IsBroken(int(fd)) }) == nil { // a reset after its end
		_ = c.inner.Close()
	}
}

// maxInPair is how many bytes may be in the pair when more are written. A further readSize of
// them fits in, as Linux takes 208 KiB, with what it adds to each write. So the goroutine decrypts
// while the event loop serves what came before.
const maxInPair = 96 << 10

// awaitRoom waits until the pair takes readSize bytes without a wait.
func awaitRoom(inner syscall.RawConn) error {
	return inner.Write(func(fd uintptr) bool { return sockets.Unacknowledged(int(fd)) <= maxInPair || isWritable(fd) })
}

// moveIn waits for bytes of the peer and writes them to the pair. It returns an error at the end
// of either.
func (c *Conn) moveIn(inner syscall.RawConn) error {
	if err := awaitRoom(inner); err != nil { // its event loop may be late
		return err
	}
	var buf *[readSize]byte
	n := 0
	err := c.readable(func() (err error) {
		c.moving.Store(true)
		buf = readBuffers.Get().(*[readSize]byte)
		for n < len(buf) && err == nil {
			var m int
			m, err = c.tls.Read(buf[n:])
			n += m
		}
		if n > 0 && errors.Is(err, sockets.ErrWouldBlock) {
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

// copyOut copies the replies of the owner to the peer, up to the end of either.
func (c *Conn) copyOut() {
	inner, err := c.inner.SyscallConn()
	for err == nil {
		err = c.moveOut(inner)
	}
	end := time.Now()
	if errors.Is(err, errOwnerEnded) {
		_ = c.tls.CloseWrite() // fails if the peer is gone
		end = end.Add(lingerTimeout)
	} else {
		c.cut(err)
	}
	c.linger(end) // copyIn ends by then
	c.flushed.Store(true)
}

// linger ends the stream to the peer, and sets when reading from it ends.
func (c *Conn) linger(end time.Time) {
	_ = c.TCPConn.CloseWrite() // fails if the peer is gone
	_ = c.SetReadDeadline(end)
}

// errOwnerEnded is the end of an owner's replies.
var errOwnerEnded = errors.New("no more replies")

// moveOut waits for replies, and until the peer takes some, and writes them. It returns
// errOwnerEnded after the last of them, any other error if they cannot be sent.
func (c *Conn) moveOut(inner syscall.RawConn) error {
	if err := c.awaitWritable(); err != nil {
		return err
	}
	var buf *[recordSize]byte
	var n int
	var err error
	closed := inner.Read(func(fd uintptr) bool {
		buf = recordBuffers.Get().(*[recordSize]byte)
		if n, err = sockets.ReadNow(int(fd), buf[:]); n > 0 {
			return true
		}
		recordBuffers.Put(buf)
		buf = nil
		return !errors.Is(err, sockets.ErrWouldBlock)
	})
	if closed != nil {
		return closed
	}
	if buf == nil { // the end, or ECONNRESET if the owner has left bytes of the peer unread
		return errOwnerEnded
	}
	defer recordBuffers.Put(buf)
	_, err = c.tls.Write(buf[:n])
	return err
}

// cut ends the owner, as its replies cannot be sent.
func (c *Conn) cut(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.owner.Failed(ErrUnread)
	}
	_ = c.inner.Close()
}

// EndWrites bounds the sending of replies, as the owner has ended.
func (c *Conn) EndWrites() { c.endWrites(time.Now().Add(FlushTimeout)) }

// HasPending reports whether the connection has bytes of the peer that are not in the pair yet. The
// order matters: bytes move from the socket into the goroutine and on into the pair, where the
// caller looks last.
func (c *Conn) HasPending() bool { return c.hasUnread() || c.moving.Load() }

// Unsent returns how many bytes of replies the kernel keeps for the peer.
func (c *Conn) Unsent() int64 { return c.unsent() }

// closeNow closes everything, so that its goroutines end.
func (c *Conn) closeNow() {
	_ = c.TCPConn.Close()
	if c.inner != nil {
		_ = c.inner.Close()
	}
}
