// Package picture draws what make e2e ONLY=latency measured in an engine as bars, in SVG. No promise:
// it is internal to this module, and its API may change in any release.
package picture

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"slices"
	"strconv"
)

// ErrInput says that a file is not what the picture is drawn from.
var ErrInput = errors.New("bad input")

// row is a line of JSON of make e2e, one row of its table, as far as it is drawn.
type row struct {
	VLLM string `json:"vllm"`
	Name string `json:"row"`
	OK   bool   `json:"ok"`
	Rows []mode `json:"rows"`
}

// mode is what was measured with one way to look up. Times are in milliseconds, and those of rounds
// have one for each.
type mode struct {
	Measured     string    `json:"measured"` // arrivals, or blocked head
	Mode         string    `json:"mode"`
	P50          float64   `json:"p50_ms"`
	P50Rounds    []float64 `json:"p50_ms_rounds"`
	P99          float64   `json:"p99_ms"`
	P99Rounds    []float64 `json:"p99_ms_rounds"`
	Paused       float64   `json:"paused_ms"`
	PausedRounds []float64 `json:"paused_ms_rounds"`
}

// panel is a set of bars over one axis.
type panel struct {
	title    string
	measured string // of the modes that have a bar
	value    func(mode) (median float64, rounds []float64)
	cut      float64 // where bars are cut off; 0: nowhere
}

var panels = []panel{
	{"between two tokens of a stream, p99", "arrivals", func(m mode) (float64, []float64) { return m.P99, m.P99Rounds }, 0},
	{"what an arriving prompt costs each stream", "arrivals", func(m mode) (float64, []float64) { return m.Paused, m.PausedRounds }, 0},
	{"a step while a prompt waits for room, p50", "blocked head", func(m mode) (float64, []float64) { return m.P50, m.P50Rounds }, 0},
}

// names are those of the modes for readers.
var names = map[string]string{
	"none": "no store", "instant": "answers from a table", "nobody waits": "nobody waits",
	"own": "vLLM's own lookup", "own-async": "vLLM's own, lookup_async",
	"hitline": "hitline", "hitline-async": "hitline, lookup_async",
}

// Streams draws the row "latency" in text, the file that make e2e wrote: what the running streams of an engine
// notice of prompts that arrive. An error wraps [ErrInput].
func Streams(text []byte) ([]byte, error) {
	r, err := find(text)
	if err != nil {
		return nil, err
	}
	var d drawing
	d.text("title", margin, 24, "What running streams notice of other prompts, vLLM "+r.VLLM+", in milliseconds")
	d.y = 36
	for _, p := range panels {
		modes := slices.DeleteFunc(slices.Clone(r.Rows), func(m mode) bool { return m.Measured != p.measured })
		if len(modes) == 0 {
			return nil, fmt.Errorf("%w: the row latency of vLLM %s has no %s; measure it with make e2e ONLY=latency", ErrInput, r.VLLM, p.measured)
		}
		d.panel(p, modes)
	}
	return d.svg(), nil
}

// find returns the only row "latency" among lines of JSON.
func find(text []byte) (found row, err error) {
	lines := json.NewDecoder(bytes.NewReader(text))
	for {
		var r row
		err := lines.Decode(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return found, fmt.Errorf("%w: no lines of JSON: %w", ErrInput, err)
		}
		if r.Name != "latency" {
			continue
		}
		if found.Name != "" {
			return found, fmt.Errorf("%w: rows latency of vLLM %s and of %s; keep the line of one", ErrInput, found.VLLM, r.VLLM)
		}
		found = r
	}
	switch {
	case found.Name == "":
		return found, fmt.Errorf("%w: no row latency; give the file of make e2e ONLY=latency JSON=FILE", ErrInput)
	case !found.OK:
		return found, fmt.Errorf("%w: the row latency of vLLM %s failed; its times mean nothing", ErrInput, found.VLLM)
	}
	return found, nil
}

// Sizes in pixels. A page of GitHub shows 720 of them unscaled.
const (
	width      = 720
	margin     = 16
	barsFrom   = 200 // the names stand left of it
	barsTo     = width - 120
	lineHeight = 20
)

// style has the colours of light and of dark pages.
const style = `<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600 }
.page { fill: #ffffff } .other { fill: #9aa4af } .ours { fill: #0969da } .rounds { stroke: #1f2328 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .page { fill: #0d1117 } .other { fill: #57606a } .ours { fill: #58a6ff } .rounds { stroke: #e6edf3 }
}
</style>
`

// drawing is a picture under way.
type drawing struct {
	bytes.Buffer
	y float64 // of the next line
}

// text adds a text whose baseline begins at x, y.
func (d *drawing) text(class string, x, y float64, text string) {
	fmt.Fprintf(d, "<text class=%q x=\"%.0f\" y=\"%.0f\">%s</text>\n", class, x, y, html.EscapeString(text))
}

// panel adds the bars of the modes. One more than three times as long as the next is cut off.
func (d *drawing) panel(p panel, modes []mode) {
	d.y += lineHeight
	d.text("title", margin, d.y, p.title)
	d.y += lineHeight / 2
	var all []float64
	for _, m := range modes {
		median, rounds := p.value(m)
		all = append(all, slices.Max(append([]float64{median}, rounds...)))
	}
	slices.Sort(all)
	end := cmp.Or(all[len(all)-1], 1)
	if next := all[max(0, len(all)-2)]; end > 3*next {
		end = 1.2 * next
		p.cut = end
	}
	at := func(value float64) float64 { return barsFrom + (barsTo-barsFrom)*min(value/end, 1) }
	for _, m := range modes {
		d.bar(p, m, at)
	}
}

// bar adds the bar of a mode, with a line from the least to the largest of its rounds.
func (d *drawing) bar(p panel, m mode, at func(float64) float64) {
	median, rounds := p.value(m)
	class, name := "other", cmp.Or(names[m.Mode], m.Mode)
	if m.Mode == "hitline" || m.Mode == "hitline-async" {
		class = "ours"
	}
	middle := d.y + lineHeight/2
	d.text("name", margin, middle+4, name)
	fmt.Fprintf(d, "<rect class=%q x=\"%d\" y=\"%.0f\" width=\"%.1f\" height=\"%d\"/>\n", class, barsFrom, d.y+3, at(median)-barsFrom, lineHeight-6)
	right := at(median)
	if len(rounds) > 1 {
		low, high := at(slices.Min(rounds)), at(slices.Max(rounds))
		fmt.Fprintf(d, "<path class=\"rounds\" d=\"M%.1f %.0fH%.1f\"/>\n", low, middle, high)
		right = max(right, high)
	}
	value := strconv.FormatFloat(median, 'f', 1, 64)
	if p.cut > 0 && median > p.cut {
		value += ", cut off"
	}
	d.text("value", right+6, middle+4, value)
	d.y += lineHeight
}

// svg returns the whole picture.
func (d *drawing) svg() []byte {
	height := d.y + margin
	head := fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\">\n", width, height, width, height)
	page := fmt.Sprintf("<rect class=\"page\" width=\"%d\" height=\"%.0f\"/>\n", width, height)
	return slices.Concat([]byte(head+style+page), d.Bytes(), []byte("</svg>\n"))
}
