package zmtp

import (
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
)

// maxPath bounds the bytes of a unix socket's path or name: sun_path has 108, one of them for
// a zero byte.
const maxPath = 107

// DialAddress returns the network and address, as net.Dial takes them, of a ZeroMQ endpoint to
// connect to: tcp://host:port (an IPv6 address is in brackets), ipc://path, or ipc://@name, an
// abstract socket of Linux. It fails with an ErrEndpoint.
func DialAddress(endpoint string) (network, address string, err error) {
	return split(endpoint, false)
}

// ListenAddress is DialAddress for an endpoint to bind, as net.Listen takes it. tcp://*:port is
// every interface; a port of * or 0 is one that the system chooses.
func ListenAddress(endpoint string) (network, address string, err error) {
	return split(endpoint, true)
}

func split(endpoint string, bind bool) (network, address string, err error) {
	scheme, rest, _ := strings.Cut(endpoint, "://")
	switch scheme {
	case "tcp":
		network = "tcp"
		address, err = splitTCP(rest, bind)
	case "ipc":
		network, address = "unix", rest
		err = checkPath(rest)
	default:
		err = fmt.Errorf("write tcp://host:port or ipc://path")
	}
	if err != nil {
		return "", "", fmt.Errorf("%w %q: %w", ErrEndpoint, endpoint, err)
	}
	return network, address, nil
}

func splitTCP(s string, bind bool) (string, error) {
	if strings.Contains(s, ";") {
		return "", fmt.Errorf("a source address is not supported; write tcp://host:port")
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("write tcp://host:port, an IPv6 address in brackets")
	}
	wild := host == "*" || host == ""
	switch {
	case host == "*" && bind:
		host = ""
	case wild && !bind:
		return "", fmt.Errorf("no host to connect to; * is for the side that binds")
	case wild:
		return "", fmt.Errorf("no host; write tcp://*:port for every interface")
	}
	if port == "*" && bind {
		port = "0"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 && !bind {
		return "", fmt.Errorf("no port %q; it is a number from 1 to 65535", port)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

func checkPath(path string) error {
	name, abstract := strings.CutPrefix(path, "@")
	switch {
	case abstract && runtime.GOOS != "linux":
		return fmt.Errorf("only Linux has sockets without a file; write ipc://path")
	case name == "" || name == "*":
		return fmt.Errorf("no path; write ipc://path or ipc://@name")
	case strings.Contains(name, "\x00"):
		return fmt.Errorf("a zero byte in it")
	case len(name) > maxPath:
		return fmt.Errorf("a path of %d bytes; a unix socket's has at most %d", len(name), maxPath)
	}
	return nil
}
