// Package httpguard keeps pages of other sites away from the HTTP servers of this module: their requests are refused,
// and what is answered they can neither read nor keep.
package httpguard

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Guard says which requests a listener takes, by headers that the pages in a browser cannot choose. Programs that ask
// send none of them but Host. It is safe for concurrent use.
type Guard struct {
	// Local says that the listener is on loopback.
	Local bool
	// Hosts are names by which clients reach the listener, besides localhost and IP addresses. A listener on loopback,
	// or with Hosts, takes requests for these alone: whoever asks for another name may be a page of a site whose name
	// resolves to this machine (DNS rebinding).
	Hosts []string
	// Links are the paths that a person may come to by a link on a page of another site. What they answer costs little.
	Links []string
}

// otherOrigin finds the requests of pages of another origin, by Sec-Fetch-Site and Origin.
var otherOrigin = http.NewCrossOriginProtection()

var errHost = errors.New("not served for this host; use localhost, an IP address, or a name that http_hosts has")

// Check returns an error if a page of another site may have made a request. Browsers tell that of all requests over TLS
// and to loopback, otherwise of those that a page can read or that have a body.
func (g *Guard) Check(r *http.Request) error {
	if !g.takesHost(r.Host) {
		return errHost
	}
	asked := *r
	asked.Method = http.MethodPost // GET passes otherwise: here it may compute, too
	if err := otherOrigin.Check(&asked); err != nil && !g.isLink(r) {
		return fmt.Errorf("a page of another origin may not ask: %w", err)
	}
	return nil
}

// takesHost reports whether the Host of a request, with a port or without, is one of the listener's. A browser always
// sends one.
func (g *Guard) takesHost(hostport string) bool {
	if hostport == "" || !g.Local && len(g.Hosts) == 0 {
		return true
	}
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	host = strings.TrimSuffix(host, ".") // the full name, as DNS has it
	if _, err := netip.ParseAddr(host); err == nil || strings.EqualFold(host, "localhost") {
		return true
	}
	return slices.ContainsFunc(g.Hosts, func(name string) bool { return strings.EqualFold(host, name) })
}

// isLink reports whether a person has followed a link to one of Links: it is shown as a page of its own, not as part of
// another.
func (g *Guard) isLink(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-Dest") == "document" && slices.Contains(g.Links, r.URL.Path)
}

// Handler returns a handler that answers what Check refuses with status 403, and all else by next.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SetHeaders(w.Header())
		if err := g.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// SetHeaders sets the headers of all replies: no page of another site reads or keeps them.
func SetHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
