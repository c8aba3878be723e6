package picture

import (
	"bytes"
	"image/png"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// samples returns the reports in testdata by their names.
func samples(t *testing.T, names ...string) []Source {
	t.Helper()
	var sources []Source
	for _, name := range names {
		report, err := os.ReadFile("testdata/" + name + ".json")
		require.NoError(t, err)
		sources = append(sources, Source{name, report})
	}
	return sources
}

// lowDPI keeps the tests short.
const lowDPI = 24

var floors = []string{"floor-1", "floor-64", "floor-512", "floor-8192", "floor-131072"}

var pictures = map[string]struct {
	kind    string
	from    []string
	options Options
	texts   []string // stand in the picture, each whole
	absent  string   // does not
}{
	"latency of one": {"latency", []string{"run-one"}, Options{}, []string{
		"Lookup latency", "percentile of lookups (%)", "latency (µs)", "50", "90", "99.9", "99.999", "10", "500",
		"closed loop, 1 connection, 64 hashes a lookup, raw dialect; the last point is the slowest lookup",
	}, "run-one"},
	"latency of two": {"latency", []string{"run-one", "run-many"}, Options{}, []string{
		"run-one: closed loop, 1 connection, 64 hashes a lookup, raw dialect",
		"run-many: closed loop, 64 connections, 64 hashes a lookup, raw dialect",
	}, "closed loop, 1 connection, 64 hashes a lookup, raw dialect"},
	"latency of rivals": {"latency", []string{"compare"}, Options{}, []string{
		"round trips of 64 hashes on one connection", "hitline", "python-zmq", "raw socket, no lookup", "mooncake-exists (misses only)",
	}, "99.9"},
	"latency of rivals, picked": {"latency", []string{"compare"}, Options{Hashes: 8192}, []string{
		"round trips of 8192 hashes on one connection",
	}, ""},
	"knee": {"knee", []string{"steps"}, Options{}, []string{
		"Latency at rising load", "achieved (lookups/s)", "latency (µs)", "p50", "p99", "10k", "200k",
		"less than 98 % of the offered rate", "open loop, 8 connections, 64 hashes a lookup, raw dialect",
	}, ""},
	"knee of two": {"knee", []string{"steps", "steps"}, Options{}, []string{"steps, p50", "steps, p99"}, "p50"},
	"cost": {"cost", floors, Options{}, []string{
		"Round trip by number of hashes", "hashes a lookup", "round trip (µs)", "1", "100k", "hitline", "raw socket, no lookup",
	}, "floor"},
	"cost of rivals":       {"cost", append([]string{"compare"}, floors...), Options{}, []string{"hitline", "redis-exists", "go-net-map", "1"}, "floor"},
	"cost of rivals alone": {"cost", []string{"compare"}, Options{}, []string{"hitline", "redis-exists", "raw socket, no lookup"}, "1"},
	"capacity": {"capacity", []string{"index"}, Options{}, []string{
		"Hit ratio by capacity", "capacity (blocks of 512 tokens)", "blocks that hit (%)", "500", "20k", "15",
		"hitline", "LRU", "LRU, tail first", "clairvoyant, the best possible", "conversation_excerpt.jsonl: 799 requests, 21951 blocks",
	}, ""},
	"replay": {"replay", []string{"replay"}, Options{}, []string{
		"A trace over time", "time (min)", "blocks that hit (%)", "latency (µs)", "hit ratio", "p50", "p99", "60", "100",
		"conversation_trace.jsonl: 12031 requests, 100 times as fast as recorded",
	}, "time (s)"},
	"scale": {"scale", []string{"scale"}, Options{}, []string{
		"Throughput by connections and event loops", "connections", "throughput (lookups/s)", "1 loop", "8 loops", "1k", "1M",
	}, ""},
}

func TestDraw(t *testing.T) {
	kinds := map[string]bool{}
	for name, tt := range pictures {
		kinds[tt.kind] = true
		t.Run(name, func(t *testing.T) {
			o := tt.options
			o.dpi = lowDPI
			files, err := Draw(tt.kind, samples(t, tt.from...), o)
			require.NoError(t, err)
			content := map[string][]byte{}
			for _, f := range files {
				content[f.Suffix] = f.Content
			}
			require.Len(t, content, 4)
			for _, theme := range []theme{light, dark} {
				s := parseSVG(t, content[theme.suffix+".svg"])
				for _, text := range tt.texts {
					assert.Contains(t, s.texts, text)
				}
				assert.NotContains(t, s.texts, tt.absent)
				image, err := png.Decode(bytes.NewReader(content[theme.suffix+".png"]))
				require.NoError(t, err)
				assert.InDelta(t, s.width*lowDPI/72, float64(image.Bounds().Dx()), 1)
				assert.InDelta(t, s.height*lowDPI/72, float64(image.Bounds().Dy()), 1)
				r, g, b, a := theme.background.RGBA()
				cr, cg, cb, ca := image.At(2, 2).RGBA()
				assert.Equal(t, []uint32{r, g, b, a}, []uint32{cr, cg, cb, ca})
			}
		})
	}
	assert.Len(t, kinds, len(Kinds()), "each kind is drawn")
}

func TestDrawIsRepeatable(t *testing.T) {
	var files [2][]File
	for i := range files {
		var err error
		files[i], err = Draw("cost", samples(t, "compare"), Options{dpi: lowDPI})
		require.NoError(t, err)
	}
	assert.Equal(t, files[0], files[1])
}

func TestDrawDotsPerInch(t *testing.T) {
	if testing.Short() {
		t.Skip("many pixels take long under the race detector")
	}
	files, err := Draw("capacity", samples(t, "index"), Options{})
	require.NoError(t, err)
	image, err := png.Decode(bytes.NewReader(files[1].Content))
	require.NoError(t, err)
	assert.Equal(t, 1440, image.Bounds().Dx())
}

// Long names are cut, and many make more rows: all stays inside.
func TestDrawLongNames(t *testing.T) {
	one := samples(t, "steps")[0]
	var sources []Source
	for i := range 12 {
		sources = append(sources, Source{Name: strings.Repeat("a name that goes on ", i), JSON: one.JSON})
	}
	files, err := Draw("knee", sources, Options{dpi: lowDPI})
	require.NoError(t, err)
	s := parseSVG(t, files[0].Content)
	cut := 0
	for _, text := range s.texts {
		if strings.HasSuffix(text, "…") {
			cut++
		}
	}
	assert.Positive(t, cut)
	assert.Greater(t, s.height, 400.0)
}

func TestDrawBadInput(t *testing.T) {
	tests := map[string]struct {
		kind, json, want string
	}{
		"no such kind":   {"pie", "{}", `no pictures of "pie"; there are capacity, cost, knee, latency, replay, scale`},
		"empty":          {"latency", "", "a: it is empty; give it what a command printed with --json"},
		"no JSON":        {"latency", "hello", "a: not a report: invalid character 'h'"},
		"a list":         {"latency", "[1]", "a: not a report: json: cannot unmarshal array"},
		"a wrong type":   {"latency", `{"p50_us":"fast"}`, "a: not a report: json: cannot unmarshal string"},
		"two lines":      {"latency", "{}\n{}", "a: more follows the first JSON object"},
		"cut short":      {"latency", `{"p50_us":1,"partial":true}`, "a is of a run that was cut short; measure again"},
		"wrong answers":  {"latency", `{"p50_us":1,"wrong":2}`, "a has 2 wrong answers; its times mean nothing"},
		"another report": {"latency", `{"floor_p50_us":1}`, "a has no p50_us; take what hitbench run --json or hitbench compare --json prints"},
		"negative":       {"latency", `{"p50_us":1,"p99_us":-1}`, "a: p99_us is -1 in row 1; it must be above 0"},
		"wrong rival":    {"latency", `{"rows":[{"rival":"x","hashes":1,"p50_us":1,"p99_us":1,"wrong":3}]}`, "a: x has 3 wrong answers at 1 hashes"},
		"row of nothing": {"cost", `{"rows":[{"rival":"x","p50_us":1}]}`, "a: a row without rival, hashes or p50_us"},
		"no tail":        {"latency", `{"rows":[{"rival":"x","hashes":1,"p50_us":1}]}`, "a: p99_us of x is 0 in row 1"},
		"no steps":       {"knee", `{"p50_us":1}`, "a has no steps of several rates"},
		"closed loop":    {"knee", `{"steps":[{"requests_per_s":1},{"requests_per_s":2}]}`, "a has no steps of several rates"},
		"no latency":     {"knee", `{"steps":[{"rate":1,"requests_per_s":1,"p50_us":1,"p99_us":1},{"rate":2,"requests_per_s":1}]}`, "a: a figure of step 2 is 0 in row 3"},
		"wrong step":     {"knee", `{"steps":[{"rate":1,"wrong":1},{"rate":2}]}`, "a: step 1 has 1 wrong answers"},
		"no floor":       {"cost", `{"hashes":64}`, "a has no hashes and floor_p50_us"},
		"no hitline":     {"cost", `{"hashes":64,"floor_p50_us":3}`, "hitline_p50_us is 0 in row 3"},
		"no capacities":  {"capacity", `{"hashes":64}`, "a has no capacities; take what hitbench index --trace FILE --capacities N,… --json prints"},
		"no capacity":    {"capacity", `{"hashes":64,"capacities":[{"lru":1}]}`, "a: a capacity is 0"},
		"no windows":     {"replay", `{"requests":64}`, "a has no windows with requests; take what hitbench replay --json prints"},
		"empty windows":  {"replay", `{"windows":[{"start_s":1}]}`, "a has no windows with requests"},
		"mismatches":     {"replay", `{"mismatches":4}`, "a has 4 wrong answers"},
		"no time":        {"replay", `{"windows":[{"requests":1,"p50_us":1}]}`, "a: a latency of window 1 is 0 in row 2"},
		"no points":      {"scale", `{}`, "a has no points; take what hitbench scale --json prints"},
		"no loops":       {"scale", `{"points":[{"connections":1,"requests_per_s":1}]}`, "a: a figure of point 1 is 0 in row 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Draw(tt.kind, []Source{{"a", []byte(tt.json)}}, Options{})
			require.ErrorIs(t, err, ErrInput)
			assert.ErrorContains(t, err, tt.want)
		})
	}
	_, err := Draw("latency", nil, Options{})
	require.ErrorIs(t, err, ErrInput)
	_, err = Draw("latency", samples(t, "compare"), Options{Hashes: 3})
	assert.ErrorContains(t, err, "compare has no rows of 3 hashes")
}

// The server, and who embeds it, must not carry the plotting library.
func TestOnlyPicturesPlot(t *testing.T) {
	list := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		require.NoError(t, err)
		return string(out)
	}
	deps := list("-deps", "./cmd/hitline", "./lookup", "./lookup/metrics")
	require.Contains(t, deps, "hitline/netproto\n")
	assert.NotContains(t, deps, "gonum.org")
	for line := range strings.Lines(list("-f", `{{.ImportPath}}:{{join .Imports " "}} {{join .TestImports " "}}`, "./bench/...", "./cmd/...")) {
		name, imports, _ := strings.Cut(line, ":")
		if !strings.HasSuffix(name, "/bench/picture") {
			assert.NotContains(t, imports, "gonum.org", name)
		}
	}
}

func TestCostByAnchors(t *testing.T) {
	report := Source{"a", []byte(`{"hashes":8192,"floor_p50_us":90,"hitline_p50_us":50,"anchored":{"hit_p50_us":20,"miss_p50_us":70}}`)}
	f, err := cost(append(samples(t, "floor-8192"), report), Options{})
	require.NoError(t, err)
	assert.Equal(t, []curve{
		{name: "hitline", points: []point{{x: 8192, y: 118.5}}},
		{name: "hitline by anchors, hits", points: []point{{x: 8192, y: 20}}},
		{name: "hitline by anchors, misses", points: []point{{x: 8192, y: 70}}},
		{name: "raw socket, no lookup", role: bound, points: []point{{x: 8192, y: 96.3}}},
	}, f.panels[0].curves)
	report.JSON = bytes.Replace(report.JSON, []byte("70"), []byte("0"), 1)
	_, err = cost([]Source{report}, Options{})
	assert.ErrorContains(t, err, "a: hit_p50_us or miss_p50_us is 0 in row 2")
}

func TestScalingOverSharedCores(t *testing.T) {
	shared := samples(t, "scale")[0]
	f, err := scaling([]Source{shared}, Options{})
	require.NoError(t, err)
	assert.Equal(t, "closed loop, 64 hashes a lookup, raw dialect", f.about)
	shared.JSON = bytes.Replace(shared.JSON, []byte(`"shared_cores":false`), []byte(`"shared_cores":true`), 1)
	f, err = scaling([]Source{shared}, Options{})
	require.NoError(t, err)
	assert.Equal(t, "closed loop, 64 hashes a lookup, raw dialect; client and server share the cores", f.about)
}

// Points have the spread of their rounds.
func TestScalingSpread(t *testing.T) {
	f, err := scaling([]Source{{"a", []byte(`{"points":[{"loops":1,"connections":2,"requests_per_s":20,"requests_per_s_min":15,"requests_per_s_max":30}]}`)}}, Options{})
	require.NoError(t, err)
	assert.Equal(t, []point{{x: 2, y: 20, low: 15, high: 30}}, f.panels[0].curves[0].points)
}

// What a comparison measured side by side is not mixed with what was measured at
// another time.
func TestCostOfRivalsAndFloor(t *testing.T) {
	f, err := cost(samples(t, append([]string{"compare"}, floors...)...), Options{})
	require.NoError(t, err)
	curves := f.panels[0].curves
	assert.Equal(t, "hitline", curves[0].name)
	require.Len(t, curves[0].points, 5)
	assert.Equal(t, point{x: 1, y: 11.1}, curves[0].points[0], "of floor")
	assert.Equal(t, point{x: 64, y: 12.9, low: 12, high: 14.4}, curves[0].points[1], "of the comparison")
	last := curves[len(curves)-1]
	assert.Equal(t, []any{"raw socket, no lookup", bound, 5}, []any{last.name, last.role, len(last.points)})
}
