package browsertest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/hitline/hitline/lookup/client"
)

const (
	adminToken  = "an-admins-token-of-the-test"
	readerToken = "a-readers-token-of-the-test"
)

// Where peers need tokens, connections, refusals and explanations need that of an administrator. The
// page keeps it in memory alone.
func TestToken(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(tokens, []byte(`
tokens:
  - {name: <i>admin, token: `+adminToken+`, allow: all}
  - {name: <i>reader, token: `+readerToken+`, allow: [lookup, ping]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "listen: [{address: 'tcp://127.0.0.1:0', tokens: "+tokens+"}]")
	if _, err := s.dial(client.WithToken(readerToken)).Stat(t.Context()); !errors.Is(err, client.ErrNotAllowed) {
		t.Fatal(err)
	}
	b := newTab(t)
	b.open(s.page())
	b.until(`document.body.dataset.state == "token-needed"`)
	b.until(shows("#pools", "own pool"))
	b.expect("the server responded with a status of 401") // the browser says so itself
	for _, wrong := range []string{"", "a-wrong-token-of-the-test", readerToken} {
		if wrong != "" {
			b.enterToken(wrong)
			b.until(shows("#token-form", "not the token"))
		}
		b.update()
		b.explain(hexLines(prompt("p", 3)))
		b.until(shows("#explain-result", "enter it at the top"))
		b.until(`document.body.dataset.state == "token-needed" && !document.body.textContent.includes("<i>reader")`)
	}
	b.enterToken(adminToken)
	b.until(`document.body.dataset.state == "ready"`)
	b.until(shows("#connections", "<i>reader"))
	b.until(shows("#refusals", "<i>reader"))
	b.explain(hexLines(prompt("p", 3)))
	b.until(shows("#explain-result", "0 of 48"))

	b.until(`!(location.href + document.documentElement.outerHTML + JSON.stringify({...localStorage, ...sessionStorage})).includes("token-of-the-test")`)
	cookies, err := chromedp.Call(b.ctx, network.GetCookies, network.GetCookiesParams{})
	if err != nil || len(cookies.Cookies) > 0 {
		t.Errorf("cookies: %v, %v", cookies.Cookies, err)
	}
	b.open(s.page())
	b.until(`document.body.dataset.state == "token-needed"`)
}

// enterToken enters a token as a user does.
func (b *tab) enterToken(token string) {
	b.t.Helper()
	b.until(`document.querySelector("#token").getBoundingClientRect().width > 0`)
	b.do(chromedp.Focus(chromedp.CSS("#token")), chromedp.KeyEvent("a", chromedp.KeyModifiers(kb.ModifierCtrl)))
	b.write(token)
	b.do(chromedp.KeyEvent(kb.Enter))
}
