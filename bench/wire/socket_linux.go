package wire

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket is a blocking socket, used by raw system calls: the Go scheduler is not
// told that the thread blocks, which would cost a microsecond here and there. It
// costs the collector, which would wait for the call to return, so nothing that a
// call waits for may run in this process.
type Socket struct {
	fd   int
	wait time.Duration // longest for one call; 0: for ever
}

// Take takes over conn, a connection of TCP or of a unix socket, which nobody may
// use any more. An *os.File of it would stay with the runtime's poller, whose
// thread would wake up with each answer.
func Take(conn net.Conn) (Socket, error) {
	fd, err := Descriptor(conn)
	if err != nil {
		return Socket{}, err
	}
	s := Socket{fd: fd}
	if err := unix.SetNonblock(fd, false); err != nil {
		s.Close()
		return Socket{}, err
	}
	return s, nil
}

// Descriptor takes conn apart: it returns a descriptor of its socket, to be closed,
// and closes conn.
func Descriptor(conn net.Conn) (fd int, err error) {
	defer conn.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	duplicate := func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }
	if controlErr := raw.Control(duplicate); controlErr != nil {
		return -1, controlErr
	}
	return fd, err
}

// Dial connects to addr, tcp://host:port or ipc://path; waits on the socket end
// after timeout.
func Dial(ctx context.Context, addr string, timeout time.Duration) (Socket, error) {
	dialer := net.Dialer{Timeout: timeout}
	network, target := "tcp", strings.TrimPrefix(addr, "tcp://")
	if path, ok := strings.CutPrefix(addr, "ipc://"); ok {
		network, target = "unix", path
	}
	conn, err := dialer.DialContext(ctx, network, target)
	if err != nil {
		return Socket{}, err
	}
	s, err := Take(conn)
	if err != nil {
		return Socket{}, err
	}
	if err := s.limit(timeout); err != nil {
		s.Close()
		return Socket{}, err
	}
	return s, nil
}

// limit bounds the time of each call.
func (s *Socket) limit(timeout time.Duration) error {
	s.wait = timeout
	limit := unix.NsecToTimeval(int64(timeout))
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, option, &limit); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the socket.
func (s Socket) Close() { _ = unix.Close(s.fd) } // nothing is lost with it

// Shutdown ends a call that is under way on the socket.
func (s Socket) Shutdown() { _ = unix.Shutdown(s.fd, unix.SHUT_RDWR) }

// errEnd says that the peer has closed the connection.
var errEnd = errors.New("closed by the server")

// Read reads once.
func (s Socket) Read(b []byte) (int, error) {
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

// Write writes all of b.
func (s Socket) Write(b []byte) error {
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

// WriteAll writes all buffers of v and uses v up.
func (s Socket) WriteAll(v []unix.Iovec) error {
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
func (s Socket) patient(first *time.Time) bool {
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

// StartsLike tells whether have can be the beginning of an answer that begins
// with prefix.
func StartsLike(have, prefix []byte) bool {
	n := min(len(have), len(prefix))
	return bytes.Equal(have[:n], prefix[:n])
}
