package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
