package lookup

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
)

// maxIPCPath is how many bytes of a path or a name the address of a unix socket
// takes.
const maxIPCPath = 107

// SplitAddress returns the network and address, as package net takes them, of
// tcp://host:port, ipc:///path/of/a/socket, or ipc://@name, a socket of Linux
// without a file.
func SplitAddress(addr string) (network, address string, err error) {
	scheme, rest, ok := strings.Cut(addr, "://")
	switch {
	case !ok:
		return "", "", fmt.Errorf("%q has no scheme; write tcp://host:port or ipc:///path", addr)
	case scheme == "tcp":
		return "tcp", rest, nil
	case scheme != "ipc":
		return "", "", fmt.Errorf("%q: unknown scheme %q; use tcp://host:port or ipc:///path", addr, scheme)
	}
	if err := checkIPCPath(rest); err != nil {
		return "", "", fmt.Errorf("%q: %w", addr, err)
	}
	return "unix", rest, nil
}

// checkIPCPath refuses what no unix socket can be found at, and relative paths:
// what they name depends on where a process was started.
func checkIPCPath(path string) error {
	name, abstract := strings.CutPrefix(path, "@")
	switch {
	case abstract && runtime.GOOS != "linux":
		return errors.New("only Linux has sockets without a file; give an absolute path, ipc:///path")
	case abstract && name == "":
		return errors.New("no name behind the @")
	case !abstract && (!strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/")):
		return errors.New("not the absolute path of a socket; write ipc:///path or ipc://@name")
	case strings.Contains(path, "\x00"):
		return errors.New("a zero byte in it")
	case len(name) > maxIPCPath:
		return fmt.Errorf("a path of %d bytes; a unix socket's has at most %d", len(name), maxIPCPath)
	}
	return nil
}

// tcpNetwork returns the network that takes an address for what it says: with
// "tcp", package net listens to IPv6 too where 0.0.0.0 is given.
func tcpNetwork(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return "tcp"
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return "tcp"
	case ip.Unmap().Is4():
		return "tcp4"
	}
	return "tcp6"
}
