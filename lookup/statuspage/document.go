package statuspage

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

var (
	//go:embed index.html
	html string
	//go:embed page.css
	style string
	//go:embed page.js
	script string
)

// document is the page with its style and script, so that it is one request.
var document = []byte(strings.NewReplacer("/*page.css*/", style, "/*page.js*/", script).Replace(html))

// policy is the content security policy of the page: its own style and script, requests to the same
// origin, and nothing else. The empty icon is a data: image, which keeps browsers from asking for
// /favicon.ico.
var policy = strings.Join([]string{
	"default-src 'none'", "script-src '" + hashOf(script) + "'", "style-src '" + hashOf(style) + "'", "connect-src 'self'", "img-src data:",
	"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
}, "; ")

// hashOf returns the source expression of an inline script or style.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// serveDocument answers /.
func serveDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy)
	_, _ = w.Write(document) // the client may be gone
}
