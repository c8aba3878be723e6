package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
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

// scrapeServers scrapes a server over memory, with a snapshot, and one over Redis. Both serve a pool
// with a name too.
func scrapeServers(t *testing.T) scraped {
	t.Helper()
	redis := storetest.StartRedis(t)
	s := scraped{}
	for _, config := range []string{
		"pool: {hash_block_size: 16}\npools: {p: {hash_block_size: 16}}\nbackend: {memory: {snapshot: {path: " + filepath.Join(t.TempDir(), "snapshot") + "}}}\n",
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
var freeLabels = append([]string{"pool", "version", "instance_id", "vllm"}, targetLabels...)

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

// alertRule is a rule of deploy/alerts.yaml.
type alertRule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

// alertRules returns the rules of deploy/alerts.yaml.
func alertRules(t *testing.T) (rules []alertRule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alertRule
		}
	}
	require.NoError(t, yaml.UnmarshalWithOptions([]byte(deployFile(t, "alerts.yaml")), &file, yaml.Strict()))
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	require.NotEmpty(t, rules)
	return rules
}

// known are the names of Prometheus' own series and of the recording rules.
func knownSeries(rules []alertRule) []string {
	names := []string{"up", "ALERTS"}
	for _, r := range rules {
		if r.Record != "" {
			names = append(names, r.Record)
		}
	}
	return names
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

// Each alert has what its reader needs, is tested and described.
func TestDeployAlerts(t *testing.T) {
	const runbook = "https://github.com/hitline/hitline/blob/main/docs/alerts.md#"
	docs, err := os.ReadFile("../../docs/alerts.md")
	require.NoError(t, err)
	tests := deployFile(t, "alerts_test.yaml")
	var alerts, described []string
	for _, r := range alertRules(t) {
		if r.Record != "" {
			continue
		}
		alerts = append(alerts, r.Alert)
		assert.Regexp(t, `^Hitline[A-Z]\w+$`, r.Alert)
		assert.Contains(t, []string{"critical", "warning"}, r.Labels["severity"], r.Alert)
		assert.Len(t, r.Annotations, 3, r.Alert)
		assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
		assert.NotEmpty(t, r.Annotations["description"], r.Alert)
		assert.Equal(t, runbook+strings.ToLower(r.Alert), r.Annotations["runbook_url"])
		assert.Contains(t, tests, fmt.Sprintf(`ALERTS{alertname="%s", alertstate="firing", severity="%s"`, r.Alert, r.Labels["severity"]))
	}
	for _, m := range regexp.MustCompile(`(?m)^## (Hitline\w+)$`).FindAllStringSubmatch(string(docs), -1) {
		described = append(described, m[1])
	}
	assert.Equal(t, alerts, described, "docs/alerts.md has a section for each, in the same order")
}

// An index that evicts to free memory is full for HitlineIndexTooSmall.
func TestDeployAlertOfFullIndex(t *testing.T) {
	rules := alertRules(t)
	i := slices.IndexFunc(rules, func(r alertRule) bool { return r.Alert == "HitlineIndexTooSmall" })
	bound := regexp.MustCompile(`hitline_index_bytes > ([0-9.]+) \* hitline_index_max_bytes`).FindStringSubmatch(rules[i].Expr)
	require.NotNil(t, bound)
	full, err := strconv.ParseFloat(bound[1], 64)
	require.NoError(t, err)
	for _, maxBytes := range []int64{3 << 20, 4 << 20, 5 << 20, 8 << 20} {
		service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}, Memory: index.Config{MaxBytes: maxBytes}})
		require.NoError(t, err)
		for n := 0; service.Stat().Evicted == 0; n++ {
			var keys []byte
			for i := range 100 {
				key := sha256.Sum256(fmt.Appendf(nil, "%d %d", n, i))
				keys = append(keys, key[:]...)
			}
			require.NoError(t, service.Store(t.Context(), netproto.GroupRank{}, netproto.NewHashes(keys, 32)))
		}
		st := service.Stat()
		assert.Greater(t, float64(st.Bytes), full*float64(st.MaxBytes), "%d", maxBytes)
	}
}

// promtool runs Prometheus' own tool in deploy.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		storetest.SkipOrFail(t, "promtool is not on PATH (Debian: prometheus)")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = "../../deploy"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestDeployAlertsByPromtool(t *testing.T) {
	t.Parallel() // it takes seconds
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml")
	promtool(t, "test", "rules", "alerts_test.yaml")
}

// Prometheus understands the expressions of the dashboard.
func TestDeployDashboardByPromtool(t *testing.T) {
	var rules []map[string]string
	for i, q := range dashboardQueries(t) {
		rules = append(rules, map[string]string{"record": fmt.Sprintf("query:%d", i), "expr": strings.ReplaceAll(q.expr, "$__rate_interval", "5m")})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	promtool(t, "check", "rules", file)
}

// gridPos is where a panel is, in a grid of 24 columns.
type gridPos struct{ X, Y, W, H int }

// panel is a panel of a Grafana dashboard.
type panel struct {
	ID          int
	Type, Title string
	GridPos     gridPos
	Datasource  struct{ Type, UID string }
	Targets     []struct{ RefID, Expr, LegendFormat string }
}

// dashboard is what the tests look at in deploy/grafana.json.
type dashboard struct {
	UID, Title string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Annotations struct {
		List []struct{ Name, Expr string }
	}
}

func loadDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(deployFile(t, "grafana.json")), &d))
	return d
}

// query is one query of the dashboard.
type query struct{ title, expr string }

// dashboardQueries returns the queries of the panels, and those of the variables as expressions.
func dashboardQueries(t *testing.T) (queries []query) {
	t.Helper()
	d := loadDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			queries = append(queries, query{p.Title, target.Expr})
		}
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Query)
			require.NotNil(t, m, v.Name)
			queries = append(queries, query{"variable " + v.Name, "count by (" + m[2] + ") (" + m[1] + ")"})
		}
	}
	for _, a := range d.Annotations.List {
		queries = append(queries, query{"annotation " + a.Name, a.Expr})
	}
	require.NotEmpty(t, queries)
	return queries
}

// The dashboard can be imported over any data source, and its panels do not overlap.
func TestDeployDashboard(t *testing.T) {
	d := loadDashboard(t)
	assert.Equal(t, "hitline", d.UID)
	require.NotEmpty(t, d.Templating.List)
	assert.Equal(t, "datasource", d.Templating.List[0].Type)
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		assert.False(t, ids[p.ID], "%s: the id %d is used twice", p.Title, p.ID)
		ids[p.ID] = true
		assert.NotEmpty(t, p.Title)
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				assert.Empty(t, cells[cell], p.Title)
				cells[cell] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		assert.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			assert.Contains(t, target.Expr, `instance=~"$instance"`, p.Title)
			for _, m := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				assert.True(t, variables[m[1]], "%s: no variable %s", p.Title, m[1])
			}
		}
	}
}
