package listen

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// CapConnections lowers a bound on connections to what the limit of open files allows, if each
// has a number of descriptors. It reserves a quarter of the limit for backends and files, for connections that are
// accepted only to be closed, and for those that others of the program accept: at least theirs and 64.
func CapConnections(maxConns int, openFiles, descriptors, others uint64) int {
	const minReserve = 64
	reserve := max(openFiles/4, minReserve+others)
	if openFiles <= reserve {
		return min(maxConns, 1)
	}
	if allowed := (openFiles - reserve) / descriptors; uint64(maxConns) > allowed {
		return int(max(allowed, 1))
	}
	return maxConns
}

// OpenFileLimit returns the soft limit of open files, a high one if it cannot be told. Go's runtime raises it
// to the hard limit at start.
func OpenFileLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1 << 20
	}
	return limit.Cur
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
