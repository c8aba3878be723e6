package wire

import (
	"fmt"
	"net"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Wait says how long a call on a socket waits.
type Wait struct {
	Bound time.Duration // longest for one call; 0: for ever, or not at all with Again
	Again bool          // what is over without a byte is ErrAgain, not the end of the connection
}

// Socket is a socket that is used by raw system calls: the Go scheduler is not told that
// the thread blocks, which would cost a microsecond here and there. It costs the
// collector, which would wait for the call to return, so nothing that a call waits for
// may run in this process unless the wait is short. Not safe for concurrent use, but for
// Shutdown.
type Socket struct {
	fd    int
	wait  Wait
	flags uintptr // of every call: MSG_DONTWAIT, or 0 to block
}

// Vector is a piece of what is written.
type Vector = unix.Iovec

// VectorOf points to b, which is not empty.
func VectorOf(b []byte) Vector {
	v := Vector{Base: &b[0]}
	v.SetLen(len(b))
	return v
}

// Take takes over conn, a connection of TCP or of a unix socket, which nobody may
// use any more, and closes it also on an error. An *os.File of it would stay with the
// runtime's poller, whose thread would wake up with each answer.
func Take(conn net.Conn, wait Wait) (Socket, error) {
	fd, err := descriptor(conn)
	if err != nil {
		return Socket{}, err
	}
	s := Socket{fd: fd, wait: wait}
	if wait.Again && wait.Bound == 0 {
		s.flags = unix.MSG_DONTWAIT
		return s, nil
	}
	if err := s.block(); err != nil {
		s.Close()
		return Socket{}, err
	}
	return s, nil
}

// descriptor takes conn apart: it returns a descriptor of its socket, to be closed,
// and closes conn.
func descriptor(conn net.Conn) (fd int, err error) {
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

// block has calls wait.
func (s Socket) block() error {
	if err := unix.SetNonblock(s.fd, false); err != nil {
		return err
	}
	limit := unix.NsecToTimeval(int64(s.wait.Bound))
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, option, &limit); err != nil {
			return err
		}
	}
	return nil
}

// Waits reports whether calls wait at all.
func (s Socket) Waits() bool { return s.flags == 0 }

// Close closes the socket.
func (s Socket) Close() { _ = unix.Close(s.fd) } // nothing is lost with it

// Shutdown ends a call that is under way on the socket.
func (s Socket) Shutdown() { _ = unix.Shutdown(s.fd, unix.SHUT_RDWR) }

// Read reads once.
func (s Socket) Read(b []byte) (int, error) {
	for first := (time.Time{}); ; {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), s.flags, 0, 0)
		switch {
		case errno == unix.EINTR && !s.wait.Again && s.patient(&first):
		case errno != 0:
			return 0, s.failure(errno)
		case n == 0:
			return 0, Lost(errClosed)
		default:
			return int(n), nil
		}
	}
}

// Write writes all of b.
func (s Socket) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	v := [1]Vector{VectorOf(b)}
	if err := s.WriteAll(v[:]); err != nil {
		return 0, err
	}
	return len(b), nil
}

// WriteAll writes all buffers of v and uses v up.
func (s Socket) WriteAll(v []Vector) (err error) {
	for len(v) > 0 && err == nil {
		v, err = s.WriteOnce(v)
	}
	return err
}

// maxVectors is how many vectors one call takes.
const maxVectors = 1024

// WriteOnce writes once, and returns what is left of v, which it may change.
func (s Socket) WriteOnce(v []Vector) ([]Vector, error) {
	message := unix.Msghdr{Iov: &v[0]}
	message.SetIovlen(min(len(v), maxVectors))
	for first := (time.Time{}); ; {
		n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&message)), s.flags|unix.MSG_NOSIGNAL)
		if errno == unix.EINTR && (s.wait.Again || s.patient(&first)) {
			runtime.Gosched() // the collector may be waiting for this thread, and nothing else here would notice
			continue
		}
		if errno != 0 {
			return v, s.failure(errno)
		}
		for len(v) > 0 && n >= uintptr(v[0].Len) {
			n -= uintptr(v[0].Len)
			v = v[1:]
		}
		if n > 0 {
			v[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(v[0].Base), n))
			v[0].SetLen(int(v[0].Len) - int(n))
		}
		return v, nil
	}
}

// patient reports whether to call again after a signal; first is when the first one
// came. The socket's own timeout begins anew with each call, and the Go runtime
// sends signals more often than that.
func (s Socket) patient(first *time.Time) bool {
	if first.IsZero() {
		*first = time.Now()
	}
	return s.wait.Bound == 0 || time.Since(*first) < s.wait.Bound
}

// failure says what an error of a call means.
func (s Socket) failure(errno unix.Errno) error {
	switch errno {
	case unix.EAGAIN, unix.EINTR:
		if s.wait.Again {
			return ErrAgain
		}
		return Lost(errLate)
	case unix.EPIPE, unix.ECONNRESET:
		return Lost(fmt.Errorf("%w: %w", errClosed, errno))
	}
	return Lost(errno)
}
