package statuspage

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page is one document: what it runs is what its policy names, and it refers to nothing elsewhere.
func TestDocument(t *testing.T) {
	p, _ := plainPage(t)
	w := ask(p, http.MethodGet, "/", "")
	require.Equal(t, http.StatusOK, w.Code)
	text := w.Body.String()

	policy := w.Header().Get("Content-Security-Policy")
	for _, directive := range []string{"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		assert.Contains(t, strings.Split(policy, "; "), directive)
	}
	assert.NotContains(t, policy, "unsafe")
	for tag, directive := range map[string]string{"script": "script-src", "style": "style-src"} {
		inline := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(text, -1)
		require.Len(t, inline, 1, "%s, which the policy has the hash of", tag)
		assert.NotEmpty(t, strings.TrimSpace(inline[0][1]))
		assert.Contains(t, policy, directive+" '"+hashOf(inline[0][1])+"'")
	}
	assert.NotRegexp(t, `(?i)<[^>]*\s(on[a-z]+|style)\s*=`, text, "the policy forbids handlers and styles in attributes")
	elsewhere := strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "")
	assert.NotRegexp(t, `(?i)(https?:)?//[a-z0-9.-]+\.[a-z]`, elsewhere)

	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		assert.Equal(t, want, w.Header().Get(name), name)
	}
}

func TestMethodsAndPaths(t *testing.T) {
	p, _ := plainPage(t)
	for _, test := range []struct {
		method, path string
		code         int
		allow        string
	}{
		{"GET", "/", 200, ""},
		{"HEAD", "/", 200, ""},
		{"GET", "/status", 200, ""},
		{"HEAD", "/status", 200, ""},
		{"POST", "/", 405, "GET, HEAD"},
		{"PUT", "/status", 405, "GET, HEAD"},
		{"GET", "/explain", 405, "POST"},
		{"OPTIONS", "/explain", 405, "POST"},
		{"GET", "/status/", 404, ""},
		{"GET", "/page.js", 404, ""},
		{"GET", "/favicon.ico", 404, ""},
	} {
		w := ask(p, test.method, test.path, "")
		assert.Equal(t, test.code, w.Code, "%s %s", test.method, test.path)
		assert.Equal(t, test.allow, w.Header().Get("Allow"), "%s %s", test.method, test.path)
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		assert.Empty(t, w.Header().Get("Access-Control-Allow-Origin"), "pages of other origins read nothing")
	}
}
