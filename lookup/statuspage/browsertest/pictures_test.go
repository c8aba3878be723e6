package browsertest

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// maxPicture bounds a picture, so that the docs stay small.
const maxPicture = 150_000

// TestPictures draws the pictures of the docs into the folder HITLINE_TEST_PICTURES, or into one that is
// removed.
func TestPictures(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("HITLINE_TEST_PICTURES")
	if folder == "" {
		folder = t.TempDir()
	}
	b := newTab(t)
	s := startBusyServer(t)
	for _, p := range []struct {
		name, scheme  string
		width, height int64
		mobile        bool
	}{
		{"status-light", "light", 1100, 900, false},
		{"status-dark", "dark", 1100, 900, false},
		{"status-phone", "light", 390, 844, true},
	} {
		var options []chromedp.EmulateViewportOption
		if p.mobile {
			options = append(options, chromedp.EmulateMobile)
		}
		b.emulate(p.scheme)
		b.do(chromedp.EmulateViewport(p.width, p.height, options...))
		b.open(servePast(t, s))
		b.until(shows("#connections", "llama"))
		b.explainMissing()
		b.do(chromedp.Evaluate[chromedp.Void](`document.activeElement.blur(), scrollTo(0, 0)`))
		picture := run(b, chromedp.CaptureScreenshot())
		if len(picture) > maxPicture {
			t.Errorf("%s has %d bytes, at most %d are wanted", p.name, len(picture), maxPicture)
		}
		if err := os.WriteFile(filepath.Join(folder, p.name+".png"), picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// servePast passes a server's page on, with a past that it does not have: an hour of lookups. It returns
// the address.
func servePast(t *testing.T, s *server) string {
	target, err := url.Parse(s.page())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		if r.Request.URL.Path != "/status" {
			return nil
		}
		var status map[string]any
		if err := json.NewDecoder(r.Body).Decode(&status); err != nil {
			return err
		}
		addPast(status)
		body, err := json.Marshal(status)
		if err != nil {
			return err
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Del("Content-Length")
		return nil
	}
	passing := httptest.NewServer(proxy)
	t.Cleanup(passing.Close)
	return passing.URL + "/"
}

// addPast changes a status to that of a server that has been busy for five hours.
func addPast(status map[string]any) {
	const uptime = 5 * time.Hour
	now := time.Now().UTC()
	status["uptime_seconds"], status["start_time"] = uptime.Seconds(), now.Add(-uptime)
	quantiles := func(count int, factor float64) map[string]any {
		return map[string]any{"count": count, "p50": 61e-6 * factor, "p90": 140e-6 * factor, "p99": 410e-6 * factor, "p999": 1.3e-3 * factor}
	}
	status["latency"] = map[string]any{"last_5m": quantiles(93_412, 1), "last_hour": quantiles(1_203_377, 1.15)}
	pools, _ := status["pools"].([]any)
	for i, p := range pools {
		pool, _ := p.(map[string]any)
		pool["hour"] = pastHour(now, float64(i))
	}
}

// pastHour returns an hour of a pool as /status has it. Pools of another number have another load.
func pastHour(now time.Time, number float64) map[string]any {
	const perMinute = 3e6 // tokens
	points, hits, total := []any{}, 0.0, 0.0
	for minute := range 60 {
		phase := float64(minute)/9 + 2*number
		tokens := perMinute / (number + 1) * (2 + math.Sin(phase) + 0.3*math.Sin(7*phase))
		hit := math.Round(tokens * (0.62 + 0.2*math.Sin(phase/2+number)))
		hits, total = hits+hit, total+tokens
		points = append(points, map[string]any{
			"time": now.Add(time.Duration(minute-59) * time.Minute), "hit_tokens": hit, "miss_tokens": math.Round(tokens - hit),
		})
	}
	return map[string]any{"hit_ratio": hits / total, "tokens_per_second": total / 3600, "lookups_per_second": total / 3600 / 2000, "points": points}
}
