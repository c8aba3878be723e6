package status

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
)

// browse opens a page in Chromium and returns its document, and what it has logged to its console.
func browse(t *testing.T, url string, flags ...string) (document, console string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Getenv("HITLINE_TEST_CHROMIUM"), append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + t.TempDir(),
		"--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom",
	}, append(flags, url)...)...)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	require.NoError(t, err, log.String())
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "CONSOLE") {
			console += line
		}
	}
	return string(out), console
}

// The page is right in a browser, with JavaScript and without, and on a telephone: nothing is logged to its console, and it is
// no wider than the screen. HITLINE_TEST_CHROMIUM is the program.
func TestBrowser(t *testing.T) {
	if os.Getenv("HITLINE_TEST_CHROMIUM") == "" {
		t.Skip("HITLINE_TEST_CHROMIUM names no browser")
	}
	trouble := someStatus()
	trouble.Ready, trouble.NotReadyReason = false, "the store fails"
	trouble.Store = &Store{Name: "redis", State: "open", Error: strings.Repeat("a long error ", 20)}
	trouble.Router = newRouter(nil, []router.SourceStatus{{Status: events.Status{Stale: true, LastError: "no route"}, Engine: "engine-7", Model: "m"}})
	early := Status{Ready: true, Time: time.Now(), Pools: []Pool{}, Rates: Rates{"5m": {}, "1h": {}, "24h": {}}}
	states := map[string]struct {
		status Status
		want   []string
	}{
		"evicts":  {someStatus(), []string{"60.0 %", "make the pool larger", "Twice the pool: +15.0 points", "engine-1"}},
		"early":   {early, []string{"no prompts yet", "Too early"}},
		"trouble": {trouble, []string{"not ready: the store fails", "breaker", "engine-7", "not followed: no route"}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := Render(states[strings.Trim(r.URL.Path, "/")].status)
		require.NoError(t, err)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		switch r.URL.RawQuery {
		case "frame": // a window has at least 500 pixels
			text = []byte(`<title></title><iframe width="360" height="800" src="?measured"></iframe>`)
		case "unscripted":
			w.Header().Set("Content-Security-Policy", "script-src 'none'")
		case "measured": // a script of this test's tells how wide it is
			text = []byte(strings.Replace(string(text), "</body>", `<script>parent.document.title = "width " + document.documentElement.scrollWidth + " of " + innerWidth</script></body>`, 1))
		default:
			w.Header().Set("Content-Security-Policy", contentPolicy)
		}
		_, _ = w.Write(text)
	}))
	defer server.Close()
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			document, console := browse(t, server.URL+"/"+name)
			assert.Empty(t, console)
			unscripted, _ := browse(t, server.URL+"/"+name+"?unscripted")
			for _, want := range state.want {
				assert.Contains(t, document, want)
				assert.Contains(t, unscripted, want)
			}
			document, _ = browse(t, server.URL+"/"+name+"?frame")
			measured := regexp.MustCompile(`width (\d+) of (\d+)`).FindStringSubmatch(document)
			require.NotNil(t, measured)
			width, _ := strconv.Atoi(measured[1])
			screen, _ := strconv.Atoi(measured[2])
			assert.LessOrEqual(t, width, screen)
			assert.Equal(t, 360, screen)
		})
	}
}
