package sockets

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Pair returns the descriptors of two unix sockets that are connected.
func Pair() (fds [2]int, err error) {
	syscall.ForkLock.RLock() // not every system can open sockets that a child does not inherit
	defer syscall.ForkLock.RUnlock()
	if fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != nil {
		return fds, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return fds, nil
}

// ConnPair returns two unix sockets that are connected.
func ConnPair() (one, other *net.UnixConn, err error) {
	fds, err := Pair()
	if err != nil {
		return nil, nil, err
	}
	first, err := ConnOf(fds[0])
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, nil, err
	}
	second, err := ConnOf(fds[1])
	if err != nil {
		_ = first.Close()
		return nil, nil, err
	}
	return first.(*net.UnixConn), second.(*net.UnixConn), nil
}

// ConnOf returns the connection of a socket's descriptor, which it closes: the connection has one of its own.
func ConnOf(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "socket")
	defer func() { _ = file.Close() }()
	return net.FileConn(file)
}
