package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/cmd/internal/address"
)

// passedSockets are the listening sockets that systemd, or who else starts this program as systemd does, has opened for it,
// by the fields whose addresses they are bound to. The kernel keeps the connections that arrive while nobody accepts: who
// starts the program again loses none.
type passedSockets map[string]net.Listener

// close closes the sockets that nobody serves. Those that are served are closed by who serves them.
func (p passedSockets) close() {
	for _, socket := range p {
		_ = socket.Close() // it may be closed already
	}
}

// listen returns the socket of a field, or binds its address.
func (p passedSockets) listen(field, address string) (net.Listener, error) {
	if socket := p[field]; socket != nil {
		return socket, nil
	}
	return net.Listen("tcp", address)
}

// takePassedSockets returns the sockets that were passed to this process. It is an error if one belongs to no field of cfg.
// Processes that this one starts get none.
func takePassedSockets(ctx context.Context, cfg *config.Config) (passedSockets, error) {
	passed := passedSockets{}
	n, err := countPassed()
	if err != nil {
		return passed, err
	}
	const first = 3 // descriptor, after standard input, output and error
	for fd := first; fd < first+n; fd++ {
		socket, err := passedSocket(fd)
		if err == nil {
			err = passed.add(ctx, cfg, socket)
		}
		if err != nil {
			passed.close()
			return nil, fmt.Errorf("socket %d of LISTEN_FDS: %w", fd-first+1, err)
		}
	}
	return passed, nil
}

// countPassed returns how many descriptors were passed to this process.
func countPassed() (int, error) {
	pid, fds := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	if pid != strconv.Itoa(os.Getpid()) { // they are of the process that has started this one
		return 0, nil
	}
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(name) // it cannot fail
	}
	n, err := strconv.ParseUint(fds, 10, 10)
	if err != nil {
		return 0, fmt.Errorf("LISTEN_FDS is %q, and not a number from 0 to 1023", fds)
	}
	return int(n), nil
}

// passedSocket returns the socket of a descriptor, which it closes: the socket has one of its own.
func passedSocket(fd int) (net.Listener, error) {
	unix.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "passed socket")
	defer func() { _ = file.Close() }()
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return nil, os.NewSyscallError("it is no socket", err)
	}
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if kind != unix.SOCK_STREAM || err != nil || listens == 0 {
		return nil, errors.New("it does not listen; in a socket unit use ListenStream, and Accept=no")
	}
	return net.FileListener(file)
}

// add adds a socket under the field that has its address.
func (p passedSockets) add(ctx context.Context, cfg *config.Config, socket net.Listener) error {
	bound := boundAddress(socket)
	for field, text := range cfg.Addresses() {
		configured, err := address.Parse(text)
		if err == nil && p[field] == nil && isBound(ctx, configured, bound) {
			p[field] = socket
			return nil
		}
	}
	_ = socket.Close()
	at := bound.Path
	if at == "" {
		at = net.JoinHostPort(bound.Host, strconv.Itoa(int(bound.Port)))
	}
	return fmt.Errorf("no address of listen, metrics or router.listen is %s, to which it is bound: configure it, or remove it from the socket unit", at)
}

// boundAddress returns what a socket is bound to.
func boundAddress(socket net.Listener) address.Address {
	if tcp, ok := socket.Addr().(*net.TCPAddr); ok {
		bound := tcp.AddrPort()
		return address.Address{Host: bound.Addr().Unmap().String(), Port: bound.Port()}
	}
	path := socket.Addr().String()
	if filepath.IsAbs(path) {
		path = filepath.Clean(path)
	}
	return address.Address{Path: path}
}

// lookupTimeout bounds how long a host name is looked up.
const lookupTimeout = 5 * time.Second

// isBound reports whether a configured address is the one that a socket is bound to. The host may be a name.
func isBound(ctx context.Context, configured, bound address.Address) bool {
	configured = configured.Socket()
	if configured == bound {
		return true
	}
	if _, err := netip.ParseAddr(configured.Host); configured.Port != bound.Port || configured.Path != "" || err == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ips, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", configured.Host) // a name that is not known is no address
	for _, ip := range ips {
		if ip.Unmap().String() == bound.Host {
			return true
		}
	}
	return false
}
