// Package httpguard keeps pages of other sites away from the HTTP servers of this module: their requests are refused, and
// what is answered they can neither read nor keep.
package httpguard

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// crossOrigin refuses requests that change or compute something and come from a page of another
// origin, by Sec-Fetch-Site and Origin.
var crossOrigin = http.NewCrossOriginProtection()

var errHost = errors.New("not served for this host; use localhost or an IP address")

// CheckOrigin returns an error if a request comes from a page of another site. local says that the server listens on
// loopback, see CheckHost.
func CheckOrigin(r *http.Request, local bool) error {
	if err := CheckHost(r, local); err != nil {
		return err
	}
	if err := crossOrigin.Check(r); err != nil {
		return fmt.Errorf("a page of another origin may not ask: %w", err)
	}
	return nil
}

// CheckHost returns an error if the server listens on loopback and the request is for a host that is neither localhost nor
// an IP address. A page of another site has made it, whose name resolves to this machine (DNS rebinding).
func CheckHost(r *http.Request, local bool) error {
	if !local || isLocalHost(r.Host) {
		return nil
	}
	return errHost
}

// isLocalHost reports whether the Host of a request is localhost or an IP address, with a port or
// without: no name that somebody else could make resolve to this machine.
func isLocalHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	_, err = netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost")
}

// SetHeaders sets the headers of all replies: no page of another site reads or keeps them.
func SetHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
