package browsertest

import (
	"bytes"
	"encoding/json"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
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
		{"status-light", "light", 1200, 900, false},
		{"status-dark", "dark", 1200, 900, false},
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
		picture := reduce(t, run(b, capture(!p.mobile)))
		if len(picture) > maxPicture {
			t.Errorf("%s has %d bytes, at most %d are wanted", p.name, len(picture), maxPicture)
		}
		if err := os.WriteFile(filepath.Join(folder, p.name+".png"), picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// capture takes a picture of the window, or of the whole page.
func capture(whole bool) chromedp.Action[[]byte] {
	if whole {
		return chromedp.FullScreenshot(100)
	}
	return chromedp.CaptureScreenshot()
}

// reduce returns a PNG with at most 256 colours, which takes about half of the bytes.
func reduce(t *testing.T, picture []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	to := image.NewPaletted(from.Bounds(), paletteOf(from))
	draw.Draw(to, to.Rect, from, to.Rect.Min, draw.Src)
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, to); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// paletteOf returns at most 256 colours of a picture: the most frequent of those that are alike.
func paletteOf(picture image.Image) color.Palette {
	bounds, counts := picture.Bounds(), map[color.Color]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[picture.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return counts[b] - counts[a] })
	for alike := 0; ; alike += 2 { // difference of red, green and blue, each up to 255
		var palette color.Palette
		for _, c := range colours {
			if len(palette) == 0 || difference(c, palette[palette.Index(c)]) > alike {
				palette = append(palette, c)
			}
		}
		if len(palette) <= 256 {
			return palette
		}
	}
}

// difference returns the sum of the differences of red, green and blue.
func difference(a, b color.Color) int {
	ar, ag, ab, _ := a.RGBA()
	br, bg, bb, _ := b.RGBA()
	sum := 0
	for _, d := range []int{int(ar) - int(br), int(ag) - int(bg), int(ab) - int(bb)} {
		sum += max(d, -d) >> 8
	}
	return sum
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
	pools, _ := status["pools"].([]any)
	lookups, stored := 0.0, 0.0 // a second; in all
	for i, p := range pools {
		pool, _ := p.(map[string]any)
		hour, perSecond := pastHour(now, float64(i))
		lookups += perSecond
		pool["hour"], pool["lookups"] = hour, math.Round(perSecond*uptime.Seconds())
		maxBytes, _ := pool["max_bytes"].(float64)
		used := math.Round(maxBytes * (0.93 - 0.17*float64(i)))
		pool["bytes"], pool["entries"] = used, math.Round(used/52)
		stored += math.Round(used / 52)
	}
	if stat, ok := status["stat"].(map[string]any); ok {
		stat["stored"] = stored
	}
	quantiles := func(seconds, factor float64) map[string]any {
		return map[string]any{
			"count": math.Round(lookups * seconds), "p50": 61e-6 * factor, "p90": 140e-6 * factor, "p99": 410e-6 * factor, "p999": 1.3e-3 * factor,
		}
	}
	status["latency"] = map[string]any{"last_5m": quantiles(300, 1), "last_hour": quantiles(3600, 1.15)}
}

// pastHour returns an hour of a pool as /status has it, and its lookups a second. Pools of another number
// have another load.
func pastHour(now time.Time, number float64) (hour map[string]any, lookups float64) {
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
	lookups = total / 3600 / 2000 // so many tokens each
	return map[string]any{"hit_ratio": hits / total, "tokens_per_second": total / 3600, "lookups_per_second": lookups, "points": points}, lookups
}
