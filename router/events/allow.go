package events

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/hitline/hitline/router/events/internal/zmtp"
)

// allowList has the endpoints that Register may connect to. An entry is one of
//
//	tcp://10.0.0.0/8:5557-5564   any address of a network, in brackets if it is IPv6
//	tcp://10.1.2.3:5557          one address
//	tcp://engine-0:*             one name, in any case
//	ipc:///run/engine.sock       one path
//
// Names are not resolved to compare them: a name that the list does not have is refused, even if
// it leads to an address that is allowed, because it may lead elsewhere when it is dialed.
type allowList []allowed

type allowed struct {
	endpoint string       // ipc: the whole endpoint; otherwise empty
	network  netip.Prefix // or
	host     string       // in lower case
	low      uint16       // ports
	high     uint16
}

// newAllowList parses the entries.
func newAllowList(entries []string) (allowList, error) {
	list := make(allowList, 0, len(entries))
	for _, entry := range entries {
		a, err := parseAllowed(entry)
		if err != nil {
			return nil, fmt.Errorf("events: cannot allow %q: %w; write tcp://HOST:PORT, where HOST may be a network (10.0.0.0/8) "+
				"and PORT a range (5557-5564) or *", entry, err)
		}
		list = append(list, a)
	}
	return list, nil
}

func parseAllowed(entry string) (a allowed, err error) {
	if strings.HasPrefix(entry, "ipc://") {
		_, _, err := zmtp.DialAddress(entry)
		return allowed{endpoint: entry}, err
	}
	rest, ok := strings.CutPrefix(entry, "tcp://")
	if !ok {
		return a, errors.New("neither tcp:// nor ipc://")
	}
	host, ports, err := net.SplitHostPort(rest)
	if err != nil {
		return a, err
	}
	if a.low, a.high, err = parsePorts(ports); err != nil {
		return a, err
	}
	if strings.Contains(host, "/") {
		a.network, err = netip.ParsePrefix(host)
		a.network = a.network.Masked()
		return a, err
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return a, errors.New("an address with a zone")
		}
		ip = ip.Unmap()
		a.network = netip.PrefixFrom(ip, ip.BitLen())
		return a, nil
	}
	if host == "" || host == "*" {
		return a, errors.New("no host; every address is 0.0.0.0/0 and [::/0]")
	}
	a.host = strings.ToLower(host)
	return a, nil
}

// parsePorts parses a port, a range of them, or *.
func parsePorts(s string) (low, high uint16, err error) {
	if s == "*" {
		return 1, 65535, nil
	}
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	l, err1 := strconv.ParseUint(first, 10, 16)
	h, err2 := strconv.ParseUint(last, 10, 16)
	if err1 != nil || err2 != nil || l == 0 || l > h {
		return 0, 0, fmt.Errorf("no port or range of ports %q", s)
	}
	return uint16(l), uint16(h), nil
}

// allows reports whether an endpoint may be connected to.
func (list allowList) allows(endpoint string) bool {
	network, address, err := zmtp.DialAddress(endpoint)
	if err != nil {
		return false
	}
	if network != "tcp" {
		for _, a := range list {
			if a.endpoint == endpoint {
				return true
			}
		}
		return false
	}
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	isIP := err == nil
	for _, a := range list {
		if a.endpoint != "" || uint16(port) < a.low || uint16(port) > a.high {
			continue
		}
		if isIP && ip.Zone() == "" && a.network.IsValid() && a.network.Contains(ip.Unmap()) {
			return true
		}
		if !isIP && a.host != "" && strings.ToLower(host) == a.host {
			return true
		}
	}
	return false
}
