package statuspage

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

// checkOrigin returns an error if a request comes from a page of another site.
func (p *Page) checkOrigin(r *http.Request) error {
	if p.options.Local && !IsLocalHost(r.Host) {
		return errHost
	}
	if err := crossOrigin.Check(r); err != nil {
		return fmt.Errorf("a page of another origin may not ask: %w", err)
	}
	return nil
}

// IsLocalHost reports whether the Host of a request is localhost or an IP address, with a port or
// without: no name that somebody else could make resolve to this machine.
func IsLocalHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	_, err = netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost")
}

// maySeeAll reports whether a request may see connections, refusals and explanations: if the server has
// no credentials, or with the token of an administrator.
func (p *Page) maySeeAll(r *http.Request) bool {
	if !p.server.HasCredentials() {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && token != "" && p.server.IsAdmin([]byte(token))
}
