package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/metrics"
	"github.com/hitline/hitline/lookup/server"
	routermetrics "github.com/hitline/hitline/router/metrics"
)

func deployFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + name)
	require.NoError(t, err)
	return string(text)
}

// loadConfig loads a configuration as serve does.
func loadConfig(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Source{File: configFile(t, text)})
	require.NoError(t, err)
	return cfg
}

// describedMetrics returns the names of the metrics that servers over memory and over a store may have, with a router.
func describedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	all := []prometheus.Collector{&routermetrics.Collector{}}
	for _, store := range []backend.Backend{nil, &lookuptest.KeyStore{}} {
		service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16, ModelName: "m"}, Backend: store})
		require.NoError(t, err)
		srv, err := server.New(service, server.Config{})
		require.NoError(t, err)
		all = append(all, metrics.NewServerCollector(srv))
	}
	known := map[string]bool{}
	for _, c := range all {
		descriptions := make(chan *prometheus.Desc)
		go func() {
			defer close(descriptions)
			c.Describe(descriptions)
		}()
		for d := range descriptions {
			known[regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1]] = true
		}
	}
	return known
}

// Every metric that the alerts, their tests and the dashboard name is one that servers have.
func TestDeployMetrics(t *testing.T) {
	known := describedMetrics(t)
	for _, file := range []string{"alerts.yaml", "alerts_test.yaml", "grafana.json"} {
		names := regexp.MustCompile(`(?:^|[^\w:])(hitline_\w+)`).FindAllStringSubmatch(deployFile(t, file), -1)
		require.NotEmpty(t, names)
		for _, name := range names {
			assert.True(t, known[strings.TrimSuffix(name[1], "_bucket")], "%s: no server has the metric %s; there are %v", file, name[1], slices.Sorted(maps.Keys(known)))
		}
	}
}

// The dashboard draws the metrics of which docs/monitoring.md says so, and each panel says what to do.
func TestDeployDashboard(t *testing.T) {
	board := deployFile(t, "grafana.json")
	page, err := os.ReadFile("../../docs/monitoring.md")
	require.NoError(t, err)
	_, watched, _ := strings.Cut(string(page), "\n| question | metrics |\n")
	watched, _, _ = strings.Cut(watched, "\n\n")
	names := regexp.MustCompile("`(hitline_\\w+)").FindAllStringSubmatch(watched, -1)
	require.Greater(t, len(names), 30)
	for _, name := range names {
		assert.Regexp(t, name[1]+`(_bucket)?\b`, board)
	}
	var parsed struct {
		Panels []struct {
			Type, Title, Description string
			GridPos                  struct{ X, Y, W, H int }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(board), &parsed))
	for i, p := range parsed.Panels {
		assert.True(t, p.Description != "" || p.Type == "row", p.Title)
		for _, other := range parsed.Panels[:i] {
			a, b := p.GridPos, other.GridPos
			assert.False(t, a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H, "%q lies over %q", p.Title, other.Title)
		}
	}
}

// An index of 5 MiB or more that evicts to free memory is full for HitlineIndexTooSmall.
func TestDeployAlertOfFullIndex(t *testing.T) {
	bound := regexp.MustCompile(`hitline_index_bytes > ([0-9.]+) \* hitline_index_max_bytes`).FindStringSubmatch(deployFile(t, "alerts.yaml"))
	require.NotNil(t, bound)
	full, err := strconv.ParseFloat(bound[1], 64)
	require.NoError(t, err)
	for _, maxBytes := range []int64{5 << 20, 8 << 20} {
		service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}, Memory: index.Config{MaxBytes: maxBytes}})
		require.NoError(t, err)
		for n := 0; service.Stat().Evicted == 0; n++ {
			var keys []byte
			for i := range 100 {
				key := sha256.Sum256(fmt.Appendf(nil, "%d %d", n, i))
				keys = append(keys, key[:]...)
			}
			require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
		}
		st := service.Stat()
		assert.Greater(t, float64(st.Bytes), full*float64(st.MaxBytes), "%d", maxBytes)
	}
}

// The configuration of the image lets everybody look up, and nobody change anything.
func TestDeployContainer(t *testing.T) {
	cfg := loadConfig(t, deployFile(t, "container.yaml"))
	require.Len(t, cfg.Listen, 1)
	assert.Equal(t, "tcp://0.0.0.0:7557", cfg.Listen[0].Address)
	assert.Equal(t, access.ReadOnly, cfg.Listen[0].Permissions())
	assert.Equal(t, "0.0.0.0:9557", cfg.Metrics)
}

// serve accepts the hitline.yaml that the chart renders, and the fields of it that values give.
func TestDeployChart(t *testing.T) {
	files, err := filepath.Glob("../../deploy/helm/testdata/accepted/*.golden")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		found := 0
		for document := range strings.SplitSeq(string(text), "---\n") {
			var object struct {
				Data map[string]string
			}
			require.NoError(t, yaml.Unmarshal([]byte(document), &object))
			if text, ok := object.Data["hitline.yaml"]; ok {
				found++
				loadConfig(t, text)
			}
		}
		assert.Equal(t, 1, found, file)
	}
	values, err := filepath.Glob("../../deploy/helm/testdata/accepted/*.yaml")
	require.NoError(t, err)
	for _, file := range values {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var object struct {
			Config map[string]any
		}
		require.NoError(t, yaml.Unmarshal(text, &object))
		fields := map[string]any{"metrics": "127.0.0.1:9557"} // the chart writes it, and router.listen
		maps.Copy(fields, object.Config)
		if router, ok := fields["router"].(map[string]any); ok {
			router["listen"] = "127.0.0.1:8557"
		}
		delete(fields, "backend") // it may need the URL of a Secret
		config, err := yaml.Marshal(fields)
		require.NoError(t, err)
		loadConfig(t, string(config))
	}
}

// The memory that the chart computes for the container is the sum of the bounds that the program has, and a part for
// garbage: twice that of connections, and a quarter of the index.
func TestDeployChartMemory(t *testing.T) {
	for name, store := range map[string]*remoteStore{"memory": nil, "mooncake": new(remoteStore)} {
		var cfg *config.Config
		memory := ""
		for document := range strings.SplitSeq(deployFile(t, "helm/testdata/accepted/"+name+".golden"), "---\n") {
			if text := struct{ Data map[string]string }{}; yaml.Unmarshal([]byte(document), &text) == nil && text.Data["hitline.yaml"] != "" {
				cfg = loadConfig(t, text.Data["hitline.yaml"])
			}
			if found := regexp.MustCompile(`limits:\n +memory: "(\d+)Mi"`).FindStringSubmatch(document); found != nil {
				memory = found[1]
			}
		}
		connections := int64(512 << 20)
		if store != nil {
			connections = 3584 << 20
		}
		connections = max(connections, 2*int64(cfg.Limits.MaxMemory)+100<<20)
		sum := connections + indexMemory(cfg, store)*5/4 + holderMemory(cfg) + eventMemory(cfg) + routerHTTPMemory(cfg)
		assert.Equal(t, strconv.FormatInt(wholeMiB(sum)>>20, 10), memory, name)
	}
}

// systemd does not kill a server that still drains, or that holds what it may by default.
func TestDeploySystemd(t *testing.T) {
	const closeTime = 10 * time.Second // bounds closing after draining; see lookup/server
	unit := deployFile(t, "hitline.service")
	number := func(pattern string) int64 {
		match := regexp.MustCompile(`(?m)^` + pattern + `$`).FindStringSubmatch(unit)
		require.NotNil(t, match, pattern)
		n, err := strconv.ParseInt(match[1], 10, 64)
		require.NoError(t, err)
		return n
	}
	byDefault := config.Default()
	assert.Greater(t, time.Duration(number(`TimeoutStopSec=(\d+)`))*time.Second, time.Duration(byDefault.DrainTimeout)+closeTime)
	most := number(`MemoryMax=(\d+)G`) << 30
	const rest = 100 << 20
	assert.Greater(t, most, int64(byDefault.Backend.Memory.MaxBytes)+2*server.DefaultLimits().MaxMemory+rest)
	assert.Greater(t, most, int64(2*storeMemory+rest))
	assert.Zero(t, number(`LimitCORE=(\d+)`), "no secret is written to a file")
}

// The socket unit has an address of the configuration that the packages install, and restarts leave it alone.
func TestDeploySocketUnit(t *testing.T) {
	match := regexp.MustCompile(`(?m)^ListenStream=(.*)$`).FindStringSubmatch(deployFile(t, "hitline.socket"))
	require.NotNil(t, match)
	text, err := initFiles.ReadFile("init/memory.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(text), "tcp://"+match[1])
	for _, script := range []string{"postinst", "postremove.rpm"} {
		for line := range strings.Lines(deployFile(t, "package/"+script)) {
			assert.False(t, strings.Contains(line, "restart") && strings.Contains(line, "hitline.socket"), line)
		}
	}
}
