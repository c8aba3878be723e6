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
	first, err := connOf(fds[0])
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, nil, err
	}
	second, err := connOf(fds[1])
	if err != nil {
		_ = first.Close()
		return nil, nil, err
	}
	return first.(*net.UnixConn), second.(*net.UnixConn), nil
}

// connOf returns the connection of a socket's descriptor, which it closes: the connection has one of its own.
func connOf(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "socket")
	defer func() { _ = file.Close() }()
	return net.FileConn(file)
}
