package browsertest

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// openPage opens the status page of a server and waits until it says that the server is ready.
func openPage(t *testing.T, s *server) *tab {
	t.Helper()
	b := newTab(t)
	b.open(s.page())
	b.until(`document.body.dataset.state == "ready"`)
	return b
}

// shows returns the expression that an element can be seen and has a text.
func shows(selector, text string) string {
	return fmt.Sprintf(`(e => e?.checkVisibility() && e.innerText.includes(%q))(document.querySelector(%q))`, text, selector)
}

// fill sets the value of a field, as a paste does.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`(field => {
		field.value = %q
		return field.dispatchEvent(new Event("input", {bubbles: true}))
	})(document.querySelector(%q))`, text, selector))
}

// click clicks on the middle of an element.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// update waits for an update of the page that begins after the call.
func (b *tab) update() {
	b.t.Helper()
	const updated = `document.querySelector("#updated").innerText`
	for range 2 { // the next one may have been under way
		b.until(fmt.Sprintf(`%s != %q`, updated, eval[string](b, updated)))
	}
}

// A server that nobody has asked anything has a whole page.
func TestPageWithoutData(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	b := openPage(t, s)
	instance, err := s.dial().Instance(t.Context())
	s.require(err)
	b.until(shows("#instance", instance.ID))
	for _, selector := range []string{
		"#ready", "#uptime", `#pools tr[data-pool=""]`, "#latency", "#index", "#backend", "#snapshot", "#connections table",
		"#refusals table", "#updated",
	} {
		b.until(fmt.Sprintf(`document.querySelector(%q)?.innerText.trim()`, selector))
	}
}

// The page follows stores, lookups and connections without being loaded again.
func TestPageFollows(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	b := openPage(t, s)
	eval[bool](b, `window.loadedOnce = true`)
	c := s.dial()
	storePrompt(t, c, "p", 37)
	b.until(shows(`#pools tr[data-pool=""]`, "37"))
	b.until(shows(`#index`, "37"))
	for range 4321 {
		lookUp(t, c, "p", 1)
	}
	const counted = `/4[,.\s]?321/.test(document.querySelector("#connections tbody").innerText)`
	b.until(counted)
	b.until(`/\d ?(µs|us|ms|s)\b/.test(document.querySelector("#latency").innerText)`)
	s.require(c.Close())
	b.until(`!` + counted)
	b.until(`window.loadedOnce`)
}

// A server that is not ready says why, as long as it is not.
func TestPageNotReady(t *testing.T) {
	t.Parallel()
	s := startServer(t, "pool: {model_name: m}\nbackend: {redis: {url: 'redis://127.0.0.1:1'}}")
	c := s.dial()
	b := newTab(t)
	b.open(s.page())
	b.untilBy(`document.body.dataset.state == "not-ready" && /^not ready: ./.test(document.querySelector("#ready").innerText)`, func() {
		lookUp(t, c, "p", 1) // failures keep the circuit breaker open
	})
	b.until(shows("#backend", "redis"))
	b.until(`document.body.dataset.state == "ready"`) // half open, a second later
}

// What is pasted into the form is explained, in each notation. What cannot be explained is said.
func TestExplain(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	b := openPage(t, s)
	storePrompt(t, s.dial(), "p", 7)
	hashes := strings.Fields(hexLines(prompt("p", 12)))
	list, err := json.Marshal(hashes)
	s.require(err)
	b.fill("#explain-tokens", fmt.Sprint(12*blockSize))
	for _, text := range []string{strings.Join(hashes, "\n"), strings.Join(hashes, ", "), strings.Join(hashes, " "), string(list)} {
		b.explain(text)
		b.until(shows("#explain-result", fmt.Sprint(7*blockSize)))
	}
	b.expect("the server responded with a status of 400") // the browser says so itself
	for _, text := range []string{"hello", "abc", "[1, 2]", hashes[0] + " 00"} {
		b.explain(text)
		b.until(`document.querySelector("#explain-result").innerText.trim()`)
		b.until(`!` + shows("#explain-result", fmt.Sprint(7*blockSize)))
	}
}

// explain empties the result and submits the form with these hashes.
func (b *tab) explain(hashes string) {
	b.t.Helper()
	b.until(`document.querySelector("#explain-result").replaceChildren() === undefined`)
	b.fill("#explain-hashes", hashes)
	b.click("#explain button[type=submit]")
}

// The page says when the server is gone, goes on when there is one again, and says that it is another.
func TestPageSurvivesRestart(t *testing.T) {
	t.Parallel()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = "127.0.0.2" // where no other test takes the ports while there is no server
	}
	s := startServerAt(t, host, "")
	b := openPage(t, s)
	eval[bool](b, `window.loadedOnce = true`)
	storePrompt(t, s.dial(), "before", 37)
	b.until(shows(`#pools tr[data-pool=""]`, "37"))
	before := eval[string](b, `document.querySelector("#instance").innerText`)

	b.expect("Failed to load resource: net::ERR_") // the browser says so itself
	s.stop()
	b.until(`document.body.dataset.state == "unreachable"`)
	b.checkContrast()
	s.start()
	b.until(`document.body.dataset.state == "ready"`)
	b.until(fmt.Sprintf(`document.querySelector("#instance").innerText != %q`, before))
	b.until(`document.body.innerText.toLowerCase().includes("restarted")`)
	storePrompt(t, s.dial(), "after", 53)
	b.until(shows(`#pools tr[data-pool=""]`, "53"))
	b.until(`window.loadedOnce`)
}
