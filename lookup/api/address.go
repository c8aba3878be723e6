package api

import (
	"errors"
	"fmt"
	"strings"
)

const (
	// DefaultPort is the TCP port of servers.
	DefaultPort = "7557"
	// DefaultListen is the default address of servers and clients. It is on loopback, where peers may
	// make every request.
	DefaultListen = "tcp://127.0.0.1:" + DefaultPort
)

// maxIPCPath bounds the bytes of a unix socket's path: sun_path has 108, one of them for a zero byte.
const maxIPCPath = 107

// SplitAddress returns the network and address of tcp://host:port or host:port (an IPv6
// address is in brackets), tls://host:port, or ipc:///path/of/a/socket. It returns an error for
// anything else. Networks are those of net.Dial and net.Listen, and "tls", which is TLS over tcp.
func SplitAddress(addr string) (network, address string, err error) {
	scheme, rest, ok := strings.Cut(addr, "://")
	switch {
	case !ok && (strings.HasPrefix(addr, "tcp") || strings.HasPrefix(addr, "tls")) && strings.Contains(addr, "/"):
		return "", "", fmt.Errorf("%q is no address; write tcp://host:port, tls://host:port or ipc:///path", addr)
	case !ok && strings.Contains(addr, "/"):
		return "", "", fmt.Errorf("%q has no scheme; write ipc:///path for a unix socket", addr)
	case !ok && addr != "":
		return "tcp", addr, nil
	case (scheme == "tcp" || scheme == "tls") && rest != "":
		return scheme, rest, nil
	case !ok || scheme == "tcp" || scheme == "tls":
		return "", "", fmt.Errorf("%q has no host and port; write tcp://host:port, tls://host:port or ipc:///path", addr)
	case scheme != "ipc":
		return "", "", fmt.Errorf("%q: unknown scheme %q; use tcp://host:port, tls://host:port or ipc:///path", addr, scheme)
	}
	if err := checkIPCPath(rest); err != nil {
		return "", "", fmt.Errorf("%q: %w", addr, err)
	}
	return "unix", rest, nil
}

// SplitList returns the addresses of a list with commas, at least one.
func SplitList(list string) []string {
	addresses := strings.Split(list, ",")
	for i := range addresses {
		addresses[i] = strings.TrimSpace(addresses[i])
	}
	return addresses
}

// AddPort returns an address with a port behind its host if there is none. What SplitAddress refuses it returns as it is.
func AddPort(addr, port string) string {
	network, rest, err := SplitAddress(addr)
	host := strings.TrimSuffix(strings.TrimPrefix(rest, "["), "]")
	if err != nil || network == "unix" || strings.Contains(rest, ":") && len(rest)-len(host) != 2 {
		return addr
	}
	return addr + ":" + port
}

// checkIPCPath returns an error if path cannot be that of a unix socket, or is relative:
// then it would depend on the working directory.
func checkIPCPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/"):
		return errors.New("not the absolute path of a socket; write ipc:///path")
	case strings.Contains(path, "\x00"):
		return errors.New("a zero byte in it")
	case len(path) > maxIPCPath:
		return fmt.Errorf("a path of %d bytes; a unix socket's has at most %d", len(path), maxIPCPath)
	}
	return nil
}
