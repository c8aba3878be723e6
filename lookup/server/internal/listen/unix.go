package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bindUnix listens on a unix socket. It replaces a file at its path only if that is a
// socket without a listener.
func bindUnix(path string, mode fs.FileMode) (*Socket, error) {
	if err := removeStaleSocket(path); err != nil {
		return nil, err
	}
	ln, err := createSocket(path, mode)
	if err != nil {
		return nil, err
	}
	ours, err := os.Lstat(path)
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	return &Socket{Listener: ln, Address: "ipc://" + path, Local: true, removeFile: func() { removeOwn(path, ours) }}, nil
}

// inUse returns the error of a path that another server listens on.
func inUse(path string) error {
	return fmt.Errorf("%s is in use by a running server: %w", path, unix.EADDRINUSE)
}

// removeStaleSocket removes the socket of a server that no longer runs. It returns an error
// if anything else is at path.
func removeStaleSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is no socket (%v): remove it, or give another path", path, info.Mode())
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		_ = conn.Close()
		return inUse(path)
	case errors.Is(err, unix.EAGAIN): // its backlog is full
		return inUse(path)
	case !errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("cannot tell whether a server uses %s: %w", path, err)
	}
	return os.NewSyscallError("unlink", unix.Unlink(path)) // os.Remove would also remove a directory
}

// createSocket creates the socket's file, sets its mode and then listens, so that no peer can
// connect before the mode is set.
func createSocket(path string, mode fs.FileMode) (Listener, error) {
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close() // FileListener has its own descriptor
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, &os.PathError{Op: "bind", Path: path, Err: err}
	}
	err = os.Chmod(path, mode)
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, unix.SOMAXCONN))
	}
	var ln net.Listener
	if err == nil {
		ln, err = net.FileListener(file)
	}
	if err != nil {
		_ = unix.Unlink(path)
		return nil, err
	}
	return ln.(Listener), nil
}

// removeOwn removes a socket's file if it is still the one that was created.
func removeOwn(path string, ours fs.FileInfo) {
	if now, err := os.Lstat(path); err == nil && os.SameFile(ours, now) {
		_ = unix.Unlink(path)
	}
}
