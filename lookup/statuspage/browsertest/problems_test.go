package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestProblemsAreNoticed opens pages that are broken on purpose. Each must lead to a problem with the
// text, and the first to none.
func TestProblemsAreNoticed(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	b.open(servePage(t, `<!doctype html><p>p</p><script>document.querySelector("p").append("<script>")</script>`))
	b.check()
	for _, c := range []struct{ body, problem string }{
		{`<!doctype html><script>console.warn("a warning")</script>`, "a warning"},
		{`<!doctype html><script>nothing()</script>`, "nothing is not defined"},
		{`<!doctype html><script>Promise.reject(new Error("a rejection"))</script>`, "a rejection"},
		{`<!doctype html><script>setTimeout(() => alert("a dialog"))</script>`, "dialog: a dialog"},
		{`<!doctype html><p style="color: red">red</p>`, "Content Security Policy"},
		{`<!doctype html><p onclick="1">p</p>`, "Content Security Policy"},
		{`<!doctype html><style>@font-face { font-family: f; src: url(//fonts.example/f) } p { font-family: f }</style><p>f</p>`, "fonts.example/f"},
		{`<!doctype html><script src="//scripts.example/s.js"></script>`, "scripts.example/s.js"},
		{`<!doctype html><img src="//pictures.example/p.png">`, "pictures.example/p.png"},
		{`<!doctype html><script>fetch("http://127.0.0.1:9/f").catch(() => 0)</script>`, "request to elsewhere: http://127.0.0.1:9/f"},
		{`<!doctype html><script>new WebSocket("ws://sockets.example/w")</script>`, "request to elsewhere: ws://sockets.example/w"},
		{`<!doctype html><script>fetch("/absent")</script>`, "404"},
		{`<p>a document without a type</p>`, "issue: QuirksMode"},
		{`<!doctype html><label for="absent">a</label><input>`, "issue: Generic"},
	} {
		b.open(servePage(t, c.body))
		deadline := time.Now().Add(timeout)
		for found := ""; !strings.Contains(found, c.problem); found += strings.Join(b.take(), "\n") {
			if time.Now().After(deadline) {
				t.Fatalf("%s has no problem %q, but %s", c.body, c.problem, found)
			}
			time.Sleep(pollInterval)
		}
	}
	b.open("about:blank") // so that nothing of the last page is noticed later
	b.take()
}

// servePage serves a document under a policy that allows inline scripts, inline style sheets and
// requests by script, and returns its address.
func servePage(t *testing.T, document string) string {
	const policy = "default-src 'none'; img-src data:; connect-src *; " +
		"style-src-elem 'unsafe-inline'; script-src-elem 'unsafe-inline'; script-src-attr 'none'"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, document, `<link rel="icon" href="data:,">`)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/"
}
