package server

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketPair returns the descriptors of two unix sockets that are connected.
func socketPair() (fds [2]int, err error) {
	syscall.ForkLock.RLock() // not every system can open sockets that a child does not inherit
	defer syscall.ForkLock.RUnlock()
	if fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != nil {
		return fds, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return fds, nil
}

// connPair returns two unix sockets that are connected.
func connPair() (one, other *net.UnixConn, err error) {
	fds, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	if one, err = connOf(fds[0]); err != nil {
		_ = unix.Close(fds[1])
		return nil, nil, err
	}
	if other, err = connOf(fds[1]); err != nil {
		_ = one.Close()
		return nil, nil, err
	}
	return one, other, nil
}

// connOf returns the connection of a unix socket's descriptor, which it closes: the connection has one of
// its own.
func connOf(fd int) (*net.UnixConn, error) {
	file := os.NewFile(uintptr(fd), "socketpair")
	defer func() { _ = file.Close() }()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}
