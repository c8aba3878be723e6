package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
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

// knownSeries returns the names of Prometheus' own series and of the recording rules.
func knownSeries(rules []alertRule) []string {
	names := []string{"up", "ALERTS"}
	for _, r := range rules {
		if r.Record != "" {
			names = append(names, r.Record)
		}
	}
	return names
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
