package browsertest

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
