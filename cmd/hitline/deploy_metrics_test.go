package main

import (
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// scraped is the values of each label of each metric, as a server exports them.
type scraped map[string]map[string][]string

var (
	sampleLine = regexp.MustCompile(`(?m)^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$`)
	labelPair  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// add adds a reply of /metrics.
func (s scraped) add(body string) {
	for _, m := range sampleLine.FindAllStringSubmatch(body, -1) {
		if s[m[1]] == nil {
			s[m[1]] = map[string][]string{}
		}
		for _, pair := range labelPair.FindAllStringSubmatch(m[2], -1) {
			if values := s[m[1]][pair[1]]; !slices.Contains(values, pair[2]) {
				s[m[1]][pair[1]] = append(values, pair[2])
			}
		}
	}
}

// scrapeServers scrapes a server over memory, with a snapshot, a source of KV events and a fleet, and one over Redis.
// Both serve a pool with a name too.
func scrapeServers(t *testing.T) scraped {
	t.Helper()
	redis := storetest.StartRedis(t)
	s := scraped{}
	for _, config := range []string{
		"pool: {hash_block_size: 16}\npools: {p: {hash_block_size: 16}}\nbackend: {memory: {snapshot: {path: " + filepath.Join(t.TempDir(), "snapshot") + "}}}\nevents: {sources: [{connect: \"tcp://127.0.0.1:9\", pool: p}]}\nfleet: {models: [{name: m, block_size: 16}]}\n",
		"pool: {model_name: m}\npools: {p: {model_name: n}}\nbackend: {redis: {url: redis://" + redis.Addr + "}}\n",
	} {
		server := startServe(t, config+"metrics: 127.0.0.1:0\n")
		status, body := (&metricsServer{metrics: server.metrics}).get(t, http.MethodGet, "/metrics")
		require.Equal(t, http.StatusOK, status)
		s.add(body)
	}
	return s
}

// targetLabels are those that Prometheus adds to what it scrapes.
var targetLabels = []string{"job", "instance"}

// freeLabels have values that depend on the configuration.
var freeLabels = append([]string{"pool", "source", "model", "tenant", "version", "instance_id", "vllm"}, targetLabels...)

// check reports what an expression of PromQL names and no server has. Names in known are those of
// Prometheus and of recording rules.
func (s scraped) check(t *testing.T, where, expr string, known ...string) {
	t.Helper()
	names, grouped := parsePromQL(expr)
	labels := slices.Clone(targetLabels)
	for name, matchers := range names {
		has := s[name]
		if !assert.True(t, has != nil || slices.Contains(known, name), "%s: no server has the metric %s", where, name) {
			continue
		}
		labels = slices.AppendSeq(labels, maps.Keys(has))
		for _, m := range matchers {
			s.checkMatcher(t, where, name, m[1], m[2], m[3])
		}
	}
	if slices.ContainsFunc(slices.Collect(maps.Keys(names)), func(name string) bool { return strings.Contains(name, ":") }) {
		labels = append(labels, "pool") // of the recording rule
	}
	for _, label := range grouped {
		assert.Contains(t, labels, label, "%s: no metric of the expression has the label", where)
	}
}

// checkMatcher reports a label of a metric that no server has, or a value that it never has.
func (s scraped) checkMatcher(t *testing.T, where, name, label, operator, value string) {
	t.Helper()
	if slices.Contains(targetLabels, label) || s[name] == nil {
		return
	}
	values, ok := s[name][label]
	if !assert.True(t, ok, "%s: %s has no label %s", where, name, label) || slices.Contains(freeLabels, label) {
		return
	}
	wanted := []string{value}
	if strings.HasSuffix(operator, "~") {
		wanted = strings.Split(value, "|")
	}
	for _, v := range wanted {
		assert.Contains(t, values, v, "%s: the label %s of %s", where, label, name)
	}
}

var (
	grouping   = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	selector   = regexp.MustCompile(`([a-zA-Z_:][\w:]*)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	notMetrics = regexp.MustCompile(`\{[^}]*\}|\[[^\]]*\]|"[^"]*"|\boffset\s+\w+|\b\d[\w.]*|\b(?:and|or|unless|bool)\b|[a-zA-Z_]\w*\s*\(`)
	identifier = regexp.MustCompile(`[a-zA-Z_:][\w:]*`)
)

// parsePromQL returns the metrics of an expression with their matchers (all, label, operator, value),
// and the labels that it groups by. It knows the syntax that the files under deploy use.
func parsePromQL(expr string) (metrics map[string][][]string, grouped []string) {
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		grouped = append(grouped, identifier.FindAllString(m[1], -1)...)
	}
	expr = grouping.ReplaceAllString(expr, " ")
	metrics = map[string][][]string{}
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		metrics[m[1]] = append(metrics[m[1]], matcher.FindAllStringSubmatch(m[2], -1)...)
	}
	for _, name := range identifier.FindAllString(notMetrics.ReplaceAllString(expr, " "), -1) {
		metrics[name] = append(metrics[name], nil...)
	}
	return metrics, grouped
}

func TestParsePromQL(t *testing.T) {
	metrics, grouped := parsePromQL(`histogram_quantile(0.99, sum by (job, le) (rate(a_bucket{x="1", y=~"2|3"}[5m] offset 1d))) > 1e-3 and on (instance) (b unless c:d{e!="f"}) or sum(b) by (pool)`)
	assert.Equal(t, map[string][][]string{
		"a_bucket": {{`x="1"`, "x", "=", "1"}, {`y=~"2|3"`, "y", "=~", "2|3"}}, "b": nil, "c:d": {{`e!="f"`, "e", "!=", "f"}},
	}, metrics)
	assert.Equal(t, []string{"job", "le", "instance", "pool"}, grouped)
}

// Every metric, label and value that the alerts, their tests and the dashboard name is there.
func TestDeployMetrics(t *testing.T) {
	s, rules := scrapeServers(t), alertRules(t)
	known := knownSeries(rules)
	for _, r := range rules {
		s.check(t, "alert "+r.Alert+r.Record, r.Expr, known...)
	}
	for _, m := range regexp.MustCompile(`series: '([^']*)'`).FindAllStringSubmatch(deployFile(t, "alerts_test.yaml"), -1) {
		s.check(t, "alerts_test.yaml", m[1], known...)
	}
	for _, q := range dashboardQueries(t) {
		s.check(t, "grafana.json: "+q.title, q.expr, known...)
	}
}
