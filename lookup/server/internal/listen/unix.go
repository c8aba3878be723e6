package listen

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// bindUnix listens on a unix socket. Its file is made under another name, with its mode, and renamed to path: so clients
// always find a socket there, and none of them connects before the mode is set. What is at path is replaced only if it is
// the socket of a server that no longer runs, or that is about to stop.
func bindUnix(path string, mode fs.FileMode) (*Socket, error) {
	if err := checkReplaceable(path); err != nil {
		return nil, err
	}
	ln, file, err := createSocket(path, mode)
	if err != nil {
		return nil, err
	}
	ours, err := os.Lstat(file)
	if err == nil {
		err = os.Rename(file, path)
	}
	if err != nil {
		_ = unix.Unlink(file)
		_ = ln.Close()
		return nil, err
	}
	return &Socket{Listener: ln, Address: "ipc://" + path, Local: true, removeFile: func() { removeOwn(path, ours) }}, nil
}

// checkReplaceable returns an error if what is at path must stay.
func checkReplaceable(path string) error {
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
		defer func() { _ = conn.Close() }()
		if isDraining(conn) {
			return nil
		}
		fallthrough
	case errors.Is(err, unix.EAGAIN): // its backlog is full
		return fmt.Errorf("%s is in use by a running server: %w", path, unix.EADDRINUSE)
	case !errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("cannot tell whether a server uses %s: %w", path, err)
	}
	return nil
}

// isDraining asks the server of a socket whether it is about to stop.
func isDraining(conn net.Conn) bool {
	const timeout, maxReply = time.Second, 64 << 10
	_ = conn.SetDeadline(time.Now().Add(timeout)) // it fails only if the connection is closed
	if _, err := conn.Write(netproto.AppendFrame(nil, []byte(netproto.TagPing.String()), false)); err != nil {
		return false
	}
	reply, n := make([]byte, maxReply), 0
	for n < maxReply {
		read, err := conn.Read(reply[n:])
		n += read
		frames, _, short := netproto.ParseMessage(reply[:n], netproto.Limits{}, nil)
		if short == nil && len(frames) > 1 {
			var instance api.Instance
			return json.Unmarshal(frames[1], &instance) == nil && instance.Draining
		}
		if err != nil {
			return false
		}
	}
	return false
}

// maxPath is how many bytes the path of a unix socket has at most.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// createSocket listens on a socket whose file, with the mode, is in the folder of path under another name.
func createSocket(path string, mode fs.FileMode) (ln Listener, name string, err error) {
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, "", os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close() // FileListener has its own descriptor
	if name, err = bindUnused(fd, path); err != nil {
		return nil, "", &os.PathError{Op: "bind", Path: path, Err: err}
	}
	err = os.Chmod(name, mode)
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, unix.SOMAXCONN))
	}
	var l net.Listener
	if err == nil {
		l, err = net.FileListener(file)
	}
	if err != nil {
		_ = unix.Unlink(name)
		return nil, "", err
	}
	return l.(Listener), name, nil
}

// bindUnused binds a socket to an unused name in the folder of path, and returns its path. The longest path leaves only
// short names.
func bindUnused(fd int, path string) (name string, err error) {
	const tries = 100
	folder, file := filepath.Split(path)
	for range tries {
		name = folder + rand.Text()[:6] + "." + file
		name = name[:min(len(name), maxPath)]
		if err = unix.Bind(fd, &unix.SockaddrUnix{Name: name}); !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return name, err
}

// removeOwn removes a socket's file if it is still the one that was created.
func removeOwn(path string, ours fs.FileInfo) {
	if now, err := os.Lstat(path); err == nil && os.SameFile(ours, now) {
		_ = unix.Unlink(path)
	}
}
