package main

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server"
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

// Every metric that the alerts, their tests and the dashboard name is one that servers export.
func TestDeployMetrics(t *testing.T) {
	redis := storetest.StartRedis(t)
	known := map[string]bool{}
	for _, config := range []string{
		"pool: {hash_block_size: 16}\nrouter: {models: [{name: m, block_size: 16}], sources: [{instance_id: i, endpoint: \"tcp://127.0.0.1:9\"}]}\n",
		"pool: {model_name: m}\nbackend: {redis: {url: redis://" + redis.Addr + "}}\n",
	} {
		server := startServe(t, config+"metrics: 127.0.0.1:0\n")
		status, body := (&metricsServer{metrics: server.metrics}).get(t, http.MethodGet, "/metrics")
		require.Equal(t, http.StatusOK, status)
		for _, line := range regexp.MustCompile(`(?m)^hitline_\w+`).FindAllString(body, -1) {
			known[line] = true
		}
	}
	for _, file := range []string{"alerts.yaml", "alerts_test.yaml", "grafana.json"} {
		names := regexp.MustCompile(`(^|[^\w:])(hitline_\w+)`).FindAllStringSubmatch(deployFile(t, file), -1)
		require.NotEmpty(t, names)
		for _, name := range names {
			assert.True(t, known[name[2]], "%s: no server has the metric %s; there are %v", file, name[2], slices.Sorted(maps.Keys(known)))
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
