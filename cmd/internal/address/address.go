// Package address reads the addresses of servers, as flags, variables and configurations have them.
package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hitline/hitline/lookup/api"
)

// Address is an address in a form that makes equal ones equal.
type Address struct {
	Host string
	Port uint16
	Path string // of ipc://, empty otherwise
	TLS  bool
}

// Socket returns what is equal for addresses of which one process can bind only one.
func (a Address) Socket() Address {
	a.TLS = false
	return a
}

// ForClient returns the address that a client connects to: text, with the port of a server that was given none. It
// refuses what is not tcp://host, host or tls://host with or without a port other than 0, or ipc://.
func ForClient(text, port string) (string, error) {
	text = api.AddPort(text, port)
	a, err := Parse(text)
	if err == nil && a.Path == "" && a.Port == 0 {
		return "", fmt.Errorf("%q has port 0; give the port of the server, 1 to 65535", text)
	}
	return text, err
}

// Parse reads what api.SplitAddress does. The host is a name or an IP address.
func Parse(text string) (Address, error) {
	network, rest, err := api.SplitAddress(text)
	switch {
	case err != nil:
		return Address{}, err
	case network == "unix":
		if strings.HasPrefix(rest, "/") {
			rest = filepath.Clean(rest)
		}
		return Address{Path: rest}, nil
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		var bad *net.AddrError
		if errors.As(err, &bad) {
			return Address{}, fmt.Errorf("%q: %s; write %s://host:port, an IPv6 address in brackets", text, bad.Err, network)
		}
		return Address{}, fmt.Errorf("%q: %w", text, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Address{}, fmt.Errorf("%q: port %q is not a number from 0 to 65535", text, port)
	}
	host, err = checkHost(text, host)
	return Address{Host: host, Port: uint16(number), TLS: network == "tls"}, err
}

// checkHost returns the host of text in its canonical form.
func checkHost(text, host string) (string, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String(), nil
	}
	switch {
	case host == "" || host == "*":
		return "", fmt.Errorf("%q has no host; for all interfaces write 0.0.0.0, or [::] for IPv6, too", text)
	case strings.Contains(host, ":"):
		return "", fmt.Errorf("%q: %q is not an IPv6 address", text, host)
	case strings.Trim(host, "0123456789.") == "":
		return "", fmt.Errorf("%q: %q is not an IPv4 address", text, host)
	}
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-._"
	host = strings.ToLower(host)
	if bad := strings.Trim(host, letters); bad != "" {
		return "", fmt.Errorf("%q: %q is not a host name or an IP address", text, host)
	}
	return host, nil
}

// IsLocal reports whether only processes of this machine can connect: over a unix socket, or loopback by its IP address
// or the name localhost. Other names are not looked up.
func (a Address) IsLocal() bool { return a.Path != "" || isLoopback(a.Host) }

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// withTLS has the scheme with TLS of those without.
var withTLS = map[string]string{
	"tcp": "tls", "http": "https", "redis": "rediss", "redis-cluster": "rediss-cluster", "valkey": "valkeys", "valkey-cluster": "valkeys-cluster",
}

// PlainTextWarning returns a warning if others on the network can read a secret, such as "token", that is sent to an
// address, which may be one of HTTP or a Redis: it has no TLS and is not local. Otherwise it returns "".
func PlainTextWarning(secret, text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "tcp", text
	}
	secure := withTLS[strings.ToLower(scheme)]
	rest = strings.TrimRight(rest, "/")
	host, _, err := net.SplitHostPort(rest)
	if err != nil {
		host = strings.Trim(rest, "[]")
	}
	if secure == "" || isLoopback(host) {
		return ""
	}
	return "the " + secret + " goes to " + text + " in plain text, for all on the way to read; use " + secure + "://"
}
