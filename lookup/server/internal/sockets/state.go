package sockets

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ErrWouldBlock is the error of a read that would wait. Package tls takes reads up again only after an error that is a
// temporary net.Error, as this one is.
var ErrWouldBlock = os.ErrDeadlineExceeded

// ReadNow reads what has arrived. It returns ErrWouldBlock if nothing has, and io.EOF at the end.
func ReadNow(fd int, p []byte) (int, error) {
	for {
		switch n, err := unix.Read(fd, p); {
		case err == nil && n == 0 && len(p) > 0:
			return 0, io.EOF
		case err == nil:
			return n, nil
		case errors.Is(err, unix.EAGAIN):
			return 0, ErrWouldBlock
		case !errors.Is(err, unix.EINTR):
			return 0, os.NewSyscallError("read", err)
		}
	}
}

// HasUnread reports whether a socket has bytes to read.
func HasUnread(fd int) bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && n > 0
}

// IsBroken reports whether nothing can be written to a socket any more.
func IsBroken(fd int) bool { return poll(fd, 0)&(unix.POLLERR|unix.POLLHUP) != 0 }

// IsWritable reports whether a large part of a socket's buffer is free, or the socket is broken.
func IsWritable(fd int) bool { return poll(fd, unix.POLLOUT) != 0 }

// IsReadable reports whether a read, or an accept, does not wait.
func IsReadable(fd int) bool { return poll(fd, unix.POLLIN) != 0 }

// poll returns which of some events a socket has now, and errors.
func poll(fd int, events int16) int16 {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	if n, err := unix.Poll(fds, 0); err != nil || n == 0 {
		return 0
	}
	return fds[0].Revents
}
