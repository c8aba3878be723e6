package floor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is a blocking socket, used by raw system calls: the Go scheduler is not
// told that the thread blocks, which would cost a microsecond here and there. It
// costs the collector, which would wait for the call to return, so nothing that a
// call waits for may run in this process.
type socket struct {
	file *os.File
	fd   int
	wait time.Duration // longest for one call; 0: for ever
}

// stream is a connection of TCP or of a unix socket.
type stream interface {
	net.Conn
	File() (*os.File, error)
}

// blocking takes over conn.
func blocking(conn stream) (socket, error) {
	defer conn.Close()
	file, err := conn.File()
	if err != nil {
		return socket{}, err
	}
	return socket{file: file, fd: int(file.Fd())}, nil // Fd makes it block
}

// dialBlocking connects to addr; waits on the socket end after timeout.
func dialBlocking(ctx context.Context, addr string, timeout time.Duration) (socket, error) {
	dialer := net.Dialer{Timeout: timeout}
	network, target := "tcp", strings.TrimPrefix(addr, "tcp://")
	if path, ok := strings.CutPrefix(addr, "ipc://"); ok {
		network, target = "unix", path
	}
	conn, err := dialer.DialContext(ctx, network, target)
	if err != nil {
		return socket{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	s, err := blocking(conn.(stream))
	if err != nil {
		return socket{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	s.wait = timeout
	limit := unix.NsecToTimeval(int64(timeout))
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, option, &limit); err != nil {
			s.close()
			return socket{}, fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	return s, nil
}

func (s socket) close() { _ = s.file.Close() } // nothing is lost with it

// shutdown ends a call that is under way on the socket.
func (s socket) shutdown() { _ = unix.Shutdown(s.fd, unix.SHUT_RDWR) }

// errEnd says that the peer has closed the connection.
var errEnd = errors.New("closed by the server")

// read reads once.
func (s socket) read(b []byte) (int, error) {
	for first := (time.Time{}); ; {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch {
		case errno == unix.EINTR && s.patient(&first):
		case errno != 0:
			return 0, failure(errno)
		case n == 0:
			return 0, errEnd
		default:
			return int(n), nil
		}
	}
}

// write writes all of b.
func (s socket) write(b []byte) error {
	for first := (time.Time{}); len(b) > 0; {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		if errno == unix.EINTR && s.patient(&first) {
			continue
		}
		if errno != 0 {
			return failure(errno)
		}
		b = b[n:]
	}
	return nil
}

// writeAll writes all buffers of v and uses v up.
func (s socket) writeAll(v []unix.Iovec) error {
	for first := (time.Time{}); len(v) > 0; {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(s.fd), uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)))
		if errno == unix.EINTR && s.patient(&first) {
			continue
		}
		if errno != 0 {
			return failure(errno)
		}
		for len(v) > 0 && n >= uintptr(v[0].Len) {
			n -= uintptr(v[0].Len)
			v = v[1:]
		}
		if n > 0 {
			v[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(v[0].Base), n))
			v[0].SetLen(int(v[0].Len) - int(n))
		}
	}
	return nil
}

// patient tells whether to call again after a signal; first is when the first one
// came. The socket's own timeout begins anew with each call, and the Go runtime
// sends signals more often than that.
func (s socket) patient(first *time.Time) bool {
	if first.IsZero() {
		*first = time.Now()
	}
	return s.wait == 0 || time.Since(*first) < s.wait
}

// failure words what a timeout is reported as.
func failure(errno unix.Errno) error {
	if errno == unix.EAGAIN || errno == unix.EINTR {
		return errors.New("no answer in time")
	}
	return errno
}

// startsLike tells whether have can be the beginning of an answer that begins
// with prefix.
func startsLike(have, prefix []byte) bool {
	n := min(len(have), len(prefix))
	return bytes.Equal(have[:n], prefix[:n])
}
