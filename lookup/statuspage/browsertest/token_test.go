package browsertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
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
  - {name: admin, token: `+adminToken+`, allow: all}
  - {name: reader, token: `+readerToken+`, allow: [lookup, ping]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "listen: [{address: 'tcp://127.0.0.1:0', tokens: "+tokens+"}]")
	b := newTab(t)
	b.open(s.page())
	b.until(`document.body.dataset.state == "token-needed"`)
	b.until(shows(`#pools tr[data-pool=""]`, "0"))
	b.until(`document.querySelectorAll("#connections tbody tr td:nth-child(2)").length == 0`)

	b.expect("401") // the browser says so of each request that is answered with it
	for _, wrong := range []string{"a-wrong-token-of-the-test", readerToken} {
		b.enterToken(wrong)
		b.update()
		b.until(`document.body.dataset.state == "token-needed"`)
	}
	b.enterToken(adminToken)
	b.until(`document.body.dataset.state == "ready"`)
	b.until(`document.querySelector("#refusals") !== null`)
	b.fill("#explain-tokens", "48")
	b.explain(hexLines(prompt("p", 3)))
	b.until(shows("#explain-result", "0"))
	b.until(`!(location.href + JSON.stringify({...localStorage, ...sessionStorage})).includes("token-of-the-test")`)
	cookies, err := chromedp.Call(b.ctx, network.GetCookies, network.GetCookiesParams{})
	if err != nil || len(cookies.Cookies) > 0 {
		t.Errorf("cookies: %v, %v", cookies.Cookies, err)
	}
	b.until(`!document.body.innerText.includes("token-of-the-test")`)

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
