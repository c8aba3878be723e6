package router

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/router/events"
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
	endpoint    string       // of ipc; otherwise
	network     netip.Prefix // or
	host        string
	first, last uint16 // ports
}

// newAllowList parses the entries. Its errors name the field of the configuration.
func newAllowList(entries []string) (allowList, error) {
	list := make(allowList, len(entries))
	for i, entry := range entries {
		var err error
		if list[i], err = parseAllowed(entry); err != nil {
			return nil, fielderror.New([]string{fmt.Sprintf("register[%d]", i)}, "cannot allow %q: %w; write tcp://HOST:PORT, where HOST may "+
				"be a network (10.0.0.0/8) and PORT a range (5557-5564) or *", entry, err)
		}
	}
	return list, nil
}

func parseAllowed(entry string) (a allowed, err error) {
	rest, isTCP := strings.CutPrefix(entry, "tcp://")
	if !isTCP {
		_, _, err := events.SplitEndpoint(entry)
		return allowed{endpoint: entry}, err
	}
	host, ports, err := net.SplitHostPort(rest)
	if err != nil {
		return a, err
	}
	if a.first, a.last, err = parsePorts(ports); err != nil {
		return a, err
	}
	ip, notIP := netip.ParseAddr(host)
	switch {
	case notIP == nil && ip.Zone() != "":
		return a, errors.New("an address with a zone")
	case notIP == nil:
		a.network, err = ip.Unmap().Prefix(ip.Unmap().BitLen())
	case strings.Contains(host, "/"):
		a.network, err = parseNetwork(host)
	case host == "" || host == "*":
		return a, errors.New("no host; every address is 0.0.0.0/0 and [::/0]")
	default:
		a.host = host
	}
	return a, err
}

// parseNetwork parses a CIDR network. One of IPv4 addresses within IPv6 is one of IPv4, as endpoints are compared.
func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if mapped := 128 - 32; err == nil && network.Addr().Is4In6() {
		if network.Bits() < mapped {
			return network, errors.New("a network of IPv4 addresses within IPv6 and of others")
		}
		network = netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-mapped)
	}
	return network, err
}

// parsePorts parses a port, a range of them, or *.
func parsePorts(s string) (first, last uint16, err error) {
	if s == "*" {
		s = "1-65535"
	}
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	f, err1 := strconv.ParseUint(low, 10, 16)
	l, err2 := strconv.ParseUint(high, 10, 16)
	if err1 != nil || err2 != nil || f == 0 || f > l {
		return 0, 0, fmt.Errorf("no port or range of ports %q", s)
	}
	return uint16(f), uint16(l), nil
}

// allows reports whether an endpoint may be connected to.
func (list allowList) allows(endpoint string) bool {
	network, address, err := events.SplitEndpoint(endpoint)
	if err != nil {
		return false
	}
	if network == "unix" {
		return slices.ContainsFunc(list, func(a allowed) bool { return a.endpoint == endpoint })
	}
	host, portText, _ := net.SplitHostPort(address) // it has both
	port, _ := strconv.ParseUint(portText, 10, 16)
	ip, notIP := netip.ParseAddr(host)
	return slices.ContainsFunc(list, func(a allowed) bool {
		switch {
		case a.endpoint != "" || uint16(port) < a.first || uint16(port) > a.last:
			return false
		case notIP != nil:
			return strings.EqualFold(host, a.host)
		}
		return a.network.Contains(ip.Unmap()) // never if it has a zone
	})
}
