package picture

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
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
	"cost": {"cost", []string{"compare"}, "Round trip by number of hashes|hashes a lookup|round trip (µs)|100k|hitline|redis-exists|raw socket, no lookup", "raw"},
	"streams": {"streams", []string{"e2e"}, "Time between the tokens of running streams|percentile of tokens (%)|inter-token latency (ms)|99.9|" +
		"none|own|hitline-async|the last point is the longest", "nobody waits"},
	"replay": {"replay", []string{"replay"}, "A trace over time|time|60 min|blocks that hit (%)|latency (µs)|hit ratio|p50|p99|60|100|" +
		"conversation_trace.jsonl, 12031 requests, 100 times as fast as recorded", "1 h"},
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
	files, err := Draw("cost", samples(t, "compare"))
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
	one := samples(t, "replay")[0]
	var sources []Source
	for i := range 12 {
		sources = append(sources, Source{Name: strings.Repeat("<a name> that goes on & ", i) + strings.Repeat("W", 2*i), JSON: one.JSON})
	}
	files, err := Draw("replay", sources)
	require.NoError(t, err)
	d := parse(t, files[0].Content)
	d.check(t)
	assert.Contains(t, strings.Join(d.texts(), "\n"), "WWW…")
	assert.Contains(t, d.texts(), "<a name> that goes on &")
	assert.Greater(t, d.height, 2000.0)
	assert.Len(t, d.labels, 36)
}

func TestDrawBadInput(t *testing.T) {
	tests := map[string]struct {
		kind, json, want string
	}{
		"no such kind":   {"pie", "{}", `no pictures of "pie"; there are cost, latency, replay, streams`},
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
		"no rows":        {"cost", `{"hashes":64}`, "a has no rows; take what hitbench compare --json prints"},
		"no arrivals":    {"streams", `{"rows":[{"measured":"blocked head","mode":"own"}]}`, "a has no rows of arrivals; take what scripts/e2e"},
		"no tokens":      {"streams", `{"rows":[{"measured":"arrivals","mode":"own"}]}`, "a: inter-token latency (ms) is 0 in point 1"},
		"no windows":     {"replay", `{"requests":64}`, "a has no windows with requests; take what hitbench replay --json prints"},
		"empty windows":  {"replay", `{"windows":[{"start_s":1}]}`, "a has no windows with requests"},
		"wrong replay":   {"replay", `{"wrong":4}`, "a has 4 wrong answers"},
		"no time":        {"replay", `{"windows":[{"requests":1,"p50_us":1}]}`, "a: latency (µs) is 0 in point 1"},
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

// Points have the spread of their rounds, one round has none, and raw is the bound.
func TestCost(t *testing.T) {
	f, err := kinds["cost"].figure(samples(t, "compare"))
	require.NoError(t, err)
	curves := f.panels[0].curves
	assert.Equal(t, "hitline", curves[0].name)
	require.Len(t, curves[0].points, 4)
	assert.Equal(t, point{x: 64, y: 12.9, low: 12, high: 14.4}, curves[0].points[0])
	last := curves[len(curves)-1]
	assert.Equal(t, []any{"raw socket, no lookup", bound, 4}, []any{last.name, last.role, len(last.points)})
	assert.Equal(t, point{x: 1, y: 2}, withBar(1, 2, measure.Spread{Median: 2, Min: 2, Max: 2}))
}
