package picture

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden pictures of testdata anew")

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

var pictures = map[string]struct {
	kind   string
	from   []string
	texts  string // that stand in the picture, each whole, apart by |
	absent string // does not
}{
	"latency of one": {"latency", []string{"run-one"}, "Lookup latency|percentile of lookups (%)|latency (µs)|50|90|99.9|99.999|10|500|run-one|" +
		"closed loop, 1 connection, 64 hashes a lookup, raw dialect; the last point is the slowest lookup", ""},
	"latency of two": {"latency", []string{"run-one", "run-many"}, "run-one, 1 connection|run-many, 64|connections|" +
		"closed loop, 64 hashes a lookup, raw dialect; the last point is the slowest lookup", "run-one"},
	"knee": {"knee", []string{"steps"}, "Latency at rising load|achieved (lookups/s)|latency (µs)|p50|p99|10k|200k|" +
		"open loop, 8 connections, 64 hashes a lookup, raw dialect; ringed: under 98 % of the rate", "short"},
	"knee of two":          {"knee", []string{"steps", "steps"}, "steps: p50|steps: p99", "p50"},
	"cost":                 {"cost", []string{"floor"}, "Round trip by number of hashes|hashes a lookup|round trip (µs)|1|100k|hitline|raw socket, no lookup", "floor"},
	"cost of rivals":       {"cost", []string{"compare", "floor"}, "hitline|redis-exists|go-net-map|1", "floor"},
	"cost of rivals alone": {"cost", []string{"compare"}, "hitline|redis-exists|raw socket, no lookup", "1"},
	"capacity": {"capacity", []string{"capacity"}, "Hit ratio by capacity|capacity (blocks)|blocks that hit (%)|500|20k|15|hitline|LRU|LRU, tail first|" +
		"the best possible, which|conversation_excerpt.jsonl, 799 requests, 21951 blocks of 512 tokens", ""},
	"replay": {"replay", []string{"replay"}, "A trace over time|time|60 min|blocks that hit (%)|latency (µs)|hit ratio|p50|p99|60|100|" +
		"conversation_trace.jsonl, 12031 requests, 100 times as fast as recorded", "1 h"},
	"scale": {"scale", []string{"scale"}, "Throughput by connections and event loops|connections|throughput (lookups/s)|1 loop|8 loops|1k|1M|" +
		"closed loop, 64 hashes a lookup, raw dialect", ""},
}

func TestDraw(t *testing.T) {
	kinds := map[string]bool{}
	for name, tt := range pictures {
		kinds[tt.kind] = true
		t.Run(name, func(t *testing.T) {
			files, err := Draw(tt.kind, samples(t, tt.from...))
			require.NoError(t, err)
			require.Len(t, files, 2)
			for i, theme := range []theme{light, dark} {
				assert.Equal(t, []string{".svg", "-dark.svg"}[i], files[i].Suffix)
				d := parse(t, files[i].Content)
				d.check(t)
				assert.Equal(t, theme.background, d.background)
				assert.Subset(t, d.texts(), strings.Split(tt.texts, "|"))
				assert.NotContains(t, d.texts(), tt.absent)
			}
			again, err := Draw(tt.kind, samples(t, tt.from...))
			require.NoError(t, err)
			assert.Equal(t, files, again, "equal sources give equal bytes")
		})
	}
	assert.Len(t, kinds, len(Kinds()), "each kind is drawn")
}

// What a picture looks like changes on purpose only: -update writes the files anew, for someone
// to look at.
func TestGolden(t *testing.T) {
	files, err := Draw("cost", samples(t, "floor"))
	require.NoError(t, err)
	for _, f := range files {
		path := "testdata/cost" + f.Suffix
		if *update {
			require.NoError(t, os.WriteFile(path, f.Content, 0o600))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(f.Content), path)
	}
}

// Long names break and are cut, many make the picture higher, and their signs are no markup: all
// stays inside and apart.
func TestDrawLongNames(t *testing.T) {
	one := samples(t, "steps")[0]
	var sources []Source
	for i := range 12 {
		sources = append(sources, Source{Name: strings.Repeat("<a name> that goes on & ", i) + strings.Repeat("W", 2*i), JSON: one.JSON})
	}
	files, err := Draw("knee", sources)
	require.NoError(t, err)
	d := parse(t, files[0].Content)
	d.check(t)
	assert.Contains(t, strings.Join(d.texts(), "\n"), "WWW…")
	assert.Contains(t, d.texts(), "<a name> that goes on &")
	assert.Greater(t, d.height, 2000.0)
	assert.Len(t, d.labels, 24)
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
		"failed":         {"latency", `{"error":"no server","exit":3}`, "a is of a command that failed: no server"},
		"cut short":      {"latency", `{"p50_us":1,"partial":true}`, "a is of a run that was cut short; measure again"},
		"wrong answers":  {"latency", `{"p50_us":1,"wrong":2}`, "a has 2 wrong answers; its times mean nothing"},
		"another report": {"latency", `{"hit_ratio":1}`, "a has no p50_us; take what hitbench run --json prints"},
		"negative":       {"latency", `{"p50_us":1,"p99_us":-1}`, "a: latency (µs) is -1 in point 2; it must be above 0"},
		"wrong rival":    {"latency", `{"rows":[{"rival":"x","hashes":1,"p50_us":1,"p99_us":1,"wrong":3}]}`, "a has 3 wrong answers"},
		"row of nothing": {"cost", `{"rows":[{"rival":"x","p50_us":1}]}`, "a: a row without rival, hashes or p50_us"},
		"no steps":       {"knee", `{"p50_us":1}`, "a has no steps of several rates"},
		"closed loop":    {"knee", `{"steps":[{"requests_per_s":1},{"requests_per_s":2}]}`, "a has no steps of several rates"},
		"no latency":     {"knee", `{"steps":[{"rate":1,"requests_per_s":1,"p50_us":1,"p99_us":1},{"rate":2,"requests_per_s":1}]}`, "a: latency (µs) is 0 in point 2"},
		"no throughput":  {"knee", `{"steps":[{"rate":1,"p50_us":1,"p99_us":1},{"rate":2,"p50_us":1,"p99_us":1}]}`, "a: achieved (lookups/s) is 0 in point 1"},
		"wrong step":     {"knee", `{"steps":[{"rate":1,"wrong":1},{"rate":2}]}`, "a has 1 wrong answers"},
		"no rows":        {"cost", `{"hashes":64}`, "a has no rows of the way prepared; take what hitbench compare --json or hitbench floor --json prints"},
		"another way":    {"cost", `{"rows":[{"rival":"x","way":"usual","hashes":1,"p50_us":1}]}`, "a has no rows of the way prepared"},
		"no capacities":  {"capacity", `{"hashes":64}`, "a has no capacities; take what hitbench capacity --json prints"},
		"no capacity":    {"capacity", `{"hashes":64,"capacities":[{"lru":1}]}`, "a: capacity (blocks) is 0"},
		"no windows":     {"replay", `{"requests":64}`, "a has no windows with requests; take what hitbench replay --json prints"},
		"empty windows":  {"replay", `{"windows":[{"start_s":1}]}`, "a has no windows with requests"},
		"wrong replay":   {"replay", `{"wrong":4}`, "a has 4 wrong answers"},
		"no time":        {"replay", `{"windows":[{"requests":1,"p50_us":1}]}`, "a: latency (µs) is 0 in point 1"},
		"no points":      {"scale", `{}`, "a has no points; take what hitbench run --sweep --json prints"},
		"wrong point":    {"scale", `{"points":[{"wrong":5}]}`, "a has 5 wrong answers"},
		"no loops":       {"scale", `{"points":[{"connections":1,"requests_per_s":{"median":1}}]}`, "a has a point without loops or requests_per_s"},
		"no connections": {"scale", `{"points":[{"loops":1,"requests_per_s":{"median":1}}]}`, "a: connections is 0 in point 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Draw(tt.kind, []Source{{"a", []byte(tt.json)}})
			require.ErrorIs(t, err, ErrInput)
			assert.ErrorContains(t, err, tt.want)
		})
	}
	_, err := Draw("latency", nil)
	require.ErrorIs(t, err, ErrInput)
}

// figureOf returns the figure of sources that can be drawn.
func figureOf(t *testing.T, kind string, sources ...Source) figure {
	t.Helper()
	f, err := kinds[kind].figure(sources)
	require.NoError(t, err)
	return f
}

// What a comparison measured side by side is not mixed with what was measured at another time.
func TestCostOfRivalsAndFloor(t *testing.T) {
	curves := figureOf(t, "cost", samples(t, "compare", "floor")...).panels[0].curves
	assert.Equal(t, "hitline", curves[0].name)
	require.Len(t, curves[0].points, 5)
	assert.Equal(t, point{x: 1, y: 11.1}, curves[0].points[0], "of floor")
	assert.Equal(t, point{x: 64, y: 12.9, low: 12, high: 14.4}, curves[0].points[1], "of the comparison")
	last := curves[len(curves)-1]
	assert.Equal(t, []any{"raw socket, no lookup", bound, 5}, []any{last.name, last.role, len(last.points)})
}

// Points have the spread of their rounds, and one round has none.
func TestScaling(t *testing.T) {
	report := `{"shared_cores":true,"points":[{"loops":1,"connections":2,"requests_per_s":{"median":20,"min":15,"max":30}},
		{"loops":1,"connections":4,"requests_per_s":{"median":20,"min":20,"max":20}}]}`
	f := figureOf(t, "scale", Source{"a", []byte(report)})
	assert.Equal(t, []point{{x: 2, y: 20, low: 15, high: 30}, {x: 4, y: 20}}, f.panels[0].curves[0].points)
	assert.Equal(t, "client and server share the cores", f.about)
}
