package statuspage

import (
	"mime"
	"net/http"
	"strings"
)

// isAdmin reports whether a request may do what only an administrator may, such as see connections, refusals
// and explanations: if the server has no credentials, or with the token of an administrator.
func (p *Page) isAdmin(r *http.Request) bool {
	if !p.server.HasCredentials() {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && token != "" && p.server.IsAdmin([]byte(token))
}

// admitAdmin reports whether a request may do what only an administrator may: any, if the server has no
// credentials. Otherwise it writes the reply that refuses the request.
func (p *Page) admitAdmin(w http.ResponseWriter, r *http.Request) bool {
	if p.isAdmin(r) {
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
func (p *Page) admitJSON(w http.ResponseWriter, r *http.Request) bool {
	if !p.admitAdmin(w, r) {
		return false
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		writeError(w, http.StatusUnsupportedMediaType, "the body must be application/json")
		return false
	}
	return true
}
