package api

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// DefaultListen is where a server listens and a client connects when nothing else is
// said. Loopback, because peers are not authenticated.
const DefaultListen = "tcp://127.0.0.1:7557"

// maxIPCPath is how many bytes of a path or a name the address of a unix socket
// takes.
const maxIPCPath = 107

// SplitAddress returns the network and address, as package net takes them, of
// tcp://host:port or host:port, where an IPv6 address stands in brackets, of
// ipc:///path/of/a/socket, or of ipc://@name, a socket of Linux without a file.
func SplitAddress(addr string) (network, address string, err error) {
	scheme, rest, ok := strings.Cut(addr, "://")
	switch {
	case !ok && strings.Contains(addr, "/"):
		return "", "", fmt.Errorf("%q has no scheme; write ipc:///path for a unix socket", addr)
	case !ok && addr != "":
		return "tcp", addr, nil
	case scheme == "tcp" && rest != "":
		return "tcp", rest, nil
	case !ok || scheme == "tcp":
		return "", "", fmt.Errorf("%q has no host and port; write tcp://host:port or ipc:///path", addr)
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
