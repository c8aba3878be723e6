package statuspage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
)

// hostile runs a script where it is taken for HTML: it marks the document. It may be the name of a pool.
const hostile = `'><img/src=x/onerror=document.body.dataset.ran=1><script>document.body.dataset.ran=2</script>`

// drawnRouter is what a router tells of itself.
const drawnRouter = `{"models": [{"model": "llama", "tenant_id": "tenant-t", "block_size": 16, "holders": 3, "stale_holders": 1, "blocks": 54321, "bytes": 7, "max_bytes": 8}],
	"sources": {"total": 2, "shown": 1, "list": [{"name": "s", "instance_id": "engine-7", "dp_rank": 5, "model": "llama", "state": "live", "stale": true, "hashes": "differ", "blocks": 65432, "batches": 1, "gaps": 0}]}}`

// submitExplain explains a lookup as a user does, once the pools are listed.
const submitExplain = `<script>
	const waiting = setInterval(() => {
		if (document.querySelectorAll("#explain-pool option").length < 2) return
		clearInterval(waiting)
		document.querySelector("#explain-hashes").value = %q
		document.querySelector("#explain button").click()
	}, 50)
</script>`

// The page shows in Chromium what the server does, also of one that has nothing to show. Text of peers stays text.
func TestPageInChromium(t *testing.T) {
	service := newService(t, lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16, HashLen: 32, ModelName: hostile}})
	named := newService(t, lookup.ServiceConfig{Pool: lookuptest.Blocks16})
	p := pageOf(t, service, server.Config{
		Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}, Version: "v1.2.3", Pools: []server.ServedPool{{Name: hostile, Service: named}},
	}, Options{Local: true, Router: func() any { return json.RawMessage(drawnRouter) }})
	start(t, p)
	empty := loadPage(t, p)
	for _, want := range []string{
		`<body data-state="ready">`, ">v1.2.3<", `<p class="empty">No connection is open.</p>`, `<p class="empty">Nothing was refused.</p>`,
		`<dd id="sum-p99">–</dd>`, `<tr data-pool="">`, ">54,321</td>", ">engine-7</td>", ">5</td>", ">tenant-t</td>", ">stale, live, hashes differ</td>", ">65,432</td>", "1 of 2 sources are listed.",
	} {
		assert.Contains(t, empty, want)
	}

	c, err := client.Dial(t.Context(), p.server.Addrs()[0], client.WithTimeout(lookuptest.Patience), client.WithPoolName(hostile))
	require.NoError(t, err)
	defer c.Close()
	store(t, service, 7)
	lookUp(t, service, 12)
	for range 4321 {
		_, err = c.Lookup(t.Context(), 16, hashesOfPrompt(1))
		require.NoError(t, err)
	}
	_, err = client.Dial(t.Context(), p.server.Addrs()[0], client.WithPoolName(hostile+"2"))
	require.ErrorIs(t, err, client.ErrRefused)

	// Without the policy and with a script that uses the form, so that the page's own care is what keeps text text.
	unprotected := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.ServeHTTP(w, r)
		if r.URL.Path == "/" {
			fmt.Fprintf(w, submitExplain, strings.Join(hexOf(12), ", "))
		}
	})
	for _, handler := range []http.Handler{p, withoutPolicy{unprotected}} {
		text := loadPage(t, handler)
		assert.Contains(t, text, `<body data-state="ready">`, "and not data-ran")
		assert.GreaterOrEqual(t, strings.Count(text, "'&gt;&lt;img/src=x/onerror="), 5, "pool, model, connection, refusal, option")
		for _, want := range []string{`>4,321</td>`, `>7</td>`, `<dd id="sum-connections">1</dd>`, "request refused"} {
			assert.Contains(t, text, want)
		}
		assert.Regexp(t, `<dd id="sum-p99">[0-9.]+ (µs|ms|s)</dd>`, text)
		if handler != http.Handler(p) {
			assert.Contains(t, text, "Hit: 112 of 192 tokens, by 12 hashes of 16 tokens in the own pool.")
			assert.Contains(t, text, ">missing_block</td>")
		}
	}
}

// withoutPolicy removes the content security policy of the replies.
type withoutPolicy struct{ http.Handler }

func (h withoutPolicy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.Handler.ServeHTTP(policyRemover{w}, r)
}

type policyRemover struct{ http.ResponseWriter }

func (w policyRemover) Write(b []byte) (int, error) {
	w.Header().Del("Content-Security-Policy")
	return w.ResponseWriter.Write(b)
}

// loadPage loads the page in Chromium, waits until it was updated, and returns its body without the script. Nothing
// may have been written to the console, as errors and what the policy forbids are.
func loadPage(t *testing.T, handler http.Handler) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	require.NoError(t, err)
	served := httptest.NewServer(handler)
	defer served.Close()
	ctx, cancel := context.WithTimeout(t.Context(), lookuptest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--user-data-dir="+t.TempDir(), "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.*", "--window-size=1200,1000", "--enable-logging=stderr",
		"--virtual-time-budget=3000", // of the page's timers; requests are waited for
		"--dump-dom", served.URL+"/")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	document, err := cmd.Output()
	require.NoError(t, err, "%s", &stderr)
	assert.Empty(t, regexp.MustCompile(`.*CONSOLE.*`).FindAllString(stderr.String(), -1))
	_, body, _ := strings.Cut(string(document), "</head>")
	body, _, found := strings.Cut(body, "<script>")
	assert.True(t, found)
	return body
}
