package statuspage

import (
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/hitline/hitline/lookup/server"
)

// crossOrigin refuses requests that change or compute something and come from a page of another
// origin, by Sec-Fetch-Site and Origin.
var crossOrigin = http.NewCrossOriginProtection()

var errHost = errors.New("not served for this host; use localhost or an IP address")

// Guard decides which requests are answered, by the rules of a status page, also for paths beside it.
type Guard struct {
	Server *server.Server
	Local  bool // as Options.Local
}

// CheckOrigin returns an error if a request comes from a page of another site.
func (g Guard) CheckOrigin(r *http.Request) error {
	if g.Local && !IsLocalHost(r.Host) {
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

// isAdmin reports whether a request may do what only an administrator may, such as see connections, refusals
// and explanations: if the server has no credentials, or with the token of an administrator.
func (g Guard) isAdmin(r *http.Request) bool {
	if !g.Server.HasCredentials() {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && token != "" && g.Server.IsAdmin([]byte(token))
}

// admitAdmin reports whether a request may do what only an administrator may: any, if the server has no
// credentials. Otherwise it writes the reply that refuses the request.
func (g Guard) admitAdmin(w http.ResponseWriter, r *http.Request) bool {
	if g.isAdmin(r) {
		return true
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	text := "needs the token of an administrator: Authorization: Bearer TOKEN"
	if r.Header.Get("Authorization") != "" {
		text = "this token is not that of an administrator: one with allow: all, of all pools, that has not expired"
	}
	writeError(w, http.StatusUnauthorized, text)
	return false
}

// admitJSON is admitAdmin for a request whose Content-Type must be application/json.
func (g Guard) admitJSON(w http.ResponseWriter, r *http.Request) bool {
	if !g.admitAdmin(w, r) {
		return false
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		writeError(w, http.StatusUnsupportedMediaType, "the body must be application/json")
		return false
	}
	return true
}
