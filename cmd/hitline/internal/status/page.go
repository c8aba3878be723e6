package status

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/tokens"
	"github.com/hitline/hitline/router"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"share": formatShare, "seconds": formatSeconds, "since": formatSince, "perSecond": formatPerSecond, "count": formatCount,
	"poolName": poolName, "bar": bar, "hour": hour, "curve": curve, "trouble": trouble, "utc": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"hitShare": func(of map[string]int64) string { return formatShare(shareOf(of)) },
	"duration": func(seconds float64) string { return formatDuration(time.Duration(seconds * float64(time.Second))) },
	"isAlone":  func(shared *float64) bool { return shared != nil && *shared < aloneShare },
}).Parse(pageText))

// contentPolicy allows the page its own style and script, and nothing from elsewhere.
var contentPolicy = fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	hashOf("<style>", "</style>"), hashOf("<script>", "</script>"))

// hashOf returns the hash of the page's text between two tags, as a content policy has it.
func hashOf(begin, end string) string {
	_, text, _ := strings.Cut(pageText, begin)
	text, _, _ = strings.Cut(text, end)
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// pageEvery is how long a rendered page is sent to all who ask.
const pageEvery = time.Second

// Page answers GET / with the status as a page. Safe for concurrent use.
type Page struct {
	Collector *Collector

	mu       sync.Mutex
	text     []byte
	rendered time.Time
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	text, err := p.render()
	if err != nil {
		http.Error(w, "the page cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", contentPolicy)
	_, _ = w.Write(text) // the reader may be gone
}

// render returns the page, which nobody changes any more.
func (p *Page) render() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.text == nil || now.Sub(p.rendered) >= pageEvery {
		text, err := Render(p.Collector.Status())
		if err != nil {
			return nil, err
		}
		p.text, p.rendered = text, now
	}
	return p.text, nil
}

// Render returns a status as a page.
func Render(st Status) ([]byte, error) {
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, newPageData(st))
	return b.Bytes(), err
}

// pageData is what the template reads beside the status.
type pageData struct {
	Status
	Bars         []barRow
	Order        []tokens.Place
	Losses       []loss
	Askers       []pageAsker
	IsOneAlone   bool // an asker has first blocks that nobody shares
	LostMost     []pageLost
	WholePrompts bool // hardly any tokens lie before the start of a lookup
}

// barRow is a window with its rate.
type barRow struct {
	Name string
	Rate Rate
	Part string // "" or how much of the window there is yet
}

// loss is a row of what can be mended.
type loss struct {
	Place     tokens.Place
	Where     string
	PerSecond string
	Share     string
	IsLost    bool // something was
	IsMuch    bool // more than a twentieth
}

type pageAsker struct {
	Pool string
	api.Asker
}

type pageLost struct {
	Pool string
	api.LostRequest
}

// newPageData returns the data of a page.
func newPageData(st Status) *pageData {
	p := &pageData{Status: st, Order: barOrder}
	for _, w := range Windows {
		row := barRow{Name: w.Name, Rate: st.Rates[w.Name]}
		if row.Rate.Seconds < w.Long.Seconds()*0.9 {
			row.Part = formatDuration(time.Duration(row.Rate.Seconds) * time.Second)
		}
		p.Bars = append(p.Bars, row)
	}
	p.addLosses()
	for i := range st.Pools {
		t := st.Pools[i].Stat.PoolTokens
		if t == nil {
			continue
		}
		for _, a := range t.Askers {
			p.Askers = append(p.Askers, pageAsker{st.Pools[i].Name, a})
			p.IsOneAlone = p.IsOneAlone || a.FirstBlockShared != nil && *a.FirstBlockShared < aloneShare
		}
		for _, r := range t.LostMost {
			p.LostMost = append(p.LostMost, pageLost{st.Pools[i].Name, r})
		}
	}
	slices.SortStableFunc(p.Askers, func(a, b pageAsker) int { return -cmp.Compare(a.Prompts, b.Prompts) })
	slices.SortStableFunc(p.LostMost, func(a, b pageLost) int { return -cmp.Compare(a.Tokens, b.Tokens) })
	p.Askers, p.LostMost = p.Askers[:min(len(p.Askers), maxListed)], p.LostMost[:min(len(p.LostMost), maxLostListed)]
	return p
}

// HasCurve reports whether enough was seen to tell of other sizes.
func (p *Pool) HasCurve() bool { return p.Stat.PoolTokens != nil && len(p.Stat.Curve) > 1 }

// sum returns the sum of a counter of all pools.
func (p *pageData) sum(counter func(*api.Stat) int64) (n int64) {
	for i := range p.Pools {
		n += counter(&p.Pools[i].Stat)
	}
	return n
}

// CallsLate returns the calls of the store, or waits for one, that were late, of all pools since the start.
func (p *pageData) CallsLate() int64 {
	return p.sum(func(s *api.Stat) int64 { return s.BackendTimeouts })
}

// CallsFailed returns the calls of the store that failed, likewise.
func (p *pageData) CallsFailed() int64 {
	return p.sum(func(s *api.Stat) int64 { return s.BackendErrors })
}

// KeysAsked returns the keys that the lookups of all pools asked the store for.
func (p *pageData) KeysAsked() int64 { return p.sum(func(s *api.Stat) int64 { return s.BackendKeys }) }

// KeysOfPrompts returns the keys of all prompts, each asked for once and whole.
func (p *pageData) KeysOfPrompts() int64 {
	return p.sum(func(s *api.Stat) int64 {
		if s.PoolTokens == nil {
			return 0
		}
		return s.Keys
	})
}

// aloneShare is the share of shared first blocks below which an asker seems to hash otherwise than the others.
const aloneShare = 0.05

// maxLostListed is how many of the requests that lost most are listed.
const maxLostListed = 20

// addLosses adds the rows of what was lost in the last hour, the largest first.
func (p *pageData) addLosses() {
	rate := p.Rates["1h"]
	all := api.AskedOfPool(rate.Tokens)
	p.WholePrompts = all > 0 && rate.Tokens[tokens.Engine.String()]*100 < all
	for _, place := range barOrder {
		if !place.IsLost() && place != tokens.NoAnswer {
			continue
		}
		n := rate.Tokens[place.String()]
		row := loss{Place: place, Where: whereTexts[place], PerSecond: formatPerSecond(n, rate.Seconds), Share: "–", IsLost: n > 0, IsMuch: 20*n > all}
		if all > 0 {
			share := float64(n) / float64(all)
			row.Share = formatShare(&share)
		}
		p.Losses = append(p.Losses, row)
	}
	slices.SortStableFunc(p.Losses, func(a, b loss) int {
		return -cmp.Compare(rate.Tokens[a.Place.String()], rate.Tokens[b.Place.String()])
	})
}

// poolName returns the name of a pool for people.
func poolName(name string) string { return cmp.Or(name, "own") }

func shareOf(of map[string]int64) *float64 {
	if share, ok := api.HitShare(of); ok {
		return &share
	}
	return nil
}

func formatShare(share *float64) string {
	if share == nil {
		return "–"
	}
	return strconv.FormatFloat(100**share, 'f', 1, 64) + " %"
}

// formatSeconds returns a duration in seconds by three digits and a unit.
func formatSeconds(s *float64) string {
	switch {
	case s == nil:
		return "–"
	case *s < 1e-3:
		return strconv.FormatFloat(*s*1e6, 'g', 3, 64) + " µs"
	case *s < 1:
		return strconv.FormatFloat(*s*1e3, 'g', 3, 64) + " ms"
	}
	return strconv.FormatFloat(*s, 'g', 3, 64) + " s"
}

// formatPerSecond returns a rate.
func formatPerSecond(n int64, seconds float64) string {
	if seconds == 0 {
		return "–"
	}
	rate := float64(n) / seconds
	if rate == 0 || rate >= 10 {
		return formatCount(int64(math.Round(rate)))
	}
	return strconv.FormatFloat(rate, 'g', 2, 64)
}

// formatCount returns a number with a space between thousands.
func formatCount(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

func formatSince(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return formatDuration(time.Since(t))
}

// formatDuration returns a time in the unit that fits it.
func formatDuration(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours())/24)
}

// trouble returns why the blocks of a source do not count, "" if they do.
func trouble(s router.SourceStatus) string {
	switch {
	case s.Stale && s.LastError != "":
		return "not followed: " + s.LastError
	case s.Stale:
		return "not followed: " + string(s.State)
	case s.Hashes == router.HashesDiffer:
		return "hashes otherwise: " + s.HashesReason
	}
	return ""
}
