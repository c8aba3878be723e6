package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/lookup/access"
)

// closeTime bounds closing after draining; see lookup/server.
const closeTime = 10 * time.Second

func deployFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + name)
	require.NoError(t, err)
	return string(text)
}

// deployConfig loads a configuration as serve would.
func deployConfig(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Source{File: configFile(t, text)})
	require.NoError(t, err)
	return cfg
}

// at walks down a document by keys and list positions.
func at(t *testing.T, document any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			fields, ok := document.(map[string]any)
			require.True(t, ok, "%v: no fields at %v", path, step)
			require.Contains(t, fields, step, path)
			document = fields[step]
		case int:
			list, ok := document.([]any)
			require.True(t, ok && step < len(list), "%v: no list at %v", path, step)
			document = list[step]
		}
	}
	return document
}

func seconds(t *testing.T, v any) time.Duration {
	t.Helper()
	n, ok := v.(uint64)
	require.True(t, ok, v)
	return time.Duration(n) * time.Second
}

func TestDeployKubernetes(t *testing.T) {
	kinds := map[string]any{}
	for text := range strings.SplitSeq(deployFile(t, "kubernetes.yaml"), "\n---\n") {
		var document map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &document))
		kinds[document["kind"].(string)] = document
	}
	cfg := deployConfig(t, at(t, kinds["ConfigMap"], "data", "hitline.yaml").(string))
	spec := at(t, kinds["Deployment"], "spec", "template", "spec")
	container := at(t, spec, "containers", 0)

	ports := map[string]uint64{}
	for _, p := range at(t, container, "ports").([]any) {
		ports[at(t, p, "name").(string)] = at(t, p, "containerPort").(uint64)
	}
	secrets := mountedSecrets(t, spec)
	for i, name := range []string{"lookup", "lookup-tls"} {
		assert.True(t, strings.HasSuffix(cfg.Listen[i].Address, "://0.0.0.0:"+strconv.FormatUint(ports[name], 10)), cfg.Listen[i].Address)
		assert.Equal(t, name, at(t, kinds["Service"], "spec", "ports", i, "targetPort"))
		assert.Equal(t, ports[name], at(t, kinds["Service"], "spec", "ports", i, "port"))
		assert.Equal(t, name, at(t, kinds["NetworkPolicy"], "spec", "ingress", 0, "ports", i, "port"))
		for _, file := range cfg.Listen[i].Files() {
			assert.Contains(t, secrets, filepath.Dir(file), "only a Secret has what may be secret")
		}
	}
	// The plug-in needs these. Nobody changes anything without a token, and without TLS none is sent.
	assert.Equal(t, access.ReadOnly|access.Pool, cfg.Listen[0].Permissions())
	assert.Empty(t, cfg.Listen[0].Tokens)
	assert.Equal(t, access.Ping, cfg.Listen[1].Permissions())
	assert.NotEmpty(t, cfg.Listen[1].Tokens)
	assert.Equal(t, "0.0.0.0:"+strconv.FormatUint(ports["metrics"], 10), cfg.Metrics)
	for probe, path := range map[string]string{"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"} {
		assert.Equal(t, path, at(t, container, probe, "httpGet", "path"), probe)
		assert.Equal(t, "metrics", at(t, container, probe, "httpGet", "port"), probe)
	}
	template := at(t, kinds["Deployment"], "spec", "template")
	labels := at(t, template, "metadata", "labels")
	for kind, path := range map[string][]any{
		"Deployment": {"spec", "selector", "matchLabels"}, "Service": {"spec", "selector"}, "NetworkPolicy": {"spec", "podSelector", "matchLabels"},
	} {
		assert.Equal(t, labels, at(t, kinds[kind], path...), kind)
	}
	assert.Equal(t, strconv.FormatUint(ports["metrics"], 10), at(t, template, "metadata", "annotations", "prometheus.io/port"))

	mount := at(t, container, "volumeMounts", 0, "mountPath").(string)
	assert.Equal(t, []any{"serve", "--config", mount + "/hitline.yaml"}, at(t, container, "args"))
	assert.GreaterOrEqual(t, seconds(t, at(t, spec, "terminationGracePeriodSeconds")), time.Duration(cfg.DrainTimeout)+closeTime)
	var limit config.Size
	require.NoError(t, limit.UnmarshalText([]byte(at(t, container, "resources", "limits", "memory").(string)+"B")))
	assert.GreaterOrEqual(t, int64(limit), int64(cfg.Backend.Memory.MaxBytes)*3/2)
}

// mountedSecrets returns the folders that have Secrets, which the pod's group may read.
func mountedSecrets(t *testing.T, spec any) []string {
	var folders []string
	for i, mount := range at(t, spec, "containers", 0, "volumeMounts").([]any) {
		volume := at(t, spec, "volumes", i)
		assert.Equal(t, at(t, volume, "name"), at(t, mount, "name"))
		if secret, ok := volume.(map[string]any)["secret"]; ok {
			assert.EqualValues(t, 0o440, at(t, secret, "defaultMode"))
			folders = append(folders, at(t, mount, "mountPath").(string))
		}
	}
	assert.Equal(t, at(t, spec, "securityContext", "runAsGroup"), at(t, spec, "securityContext", "fsGroup"))
	return folders
}

func TestDeploySystemd(t *testing.T) {
	values := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)=(.*)$`).FindAllStringSubmatch(deployFile(t, "hitline.service"), -1) {
		values[m[1]] = m[2]
	}
	cfg := config.Default()
	stop, err := strconv.Atoi(values["TimeoutStopSec"])
	require.NoError(t, err)
	assert.Greater(t, time.Duration(stop)*time.Second, time.Duration(cfg.DrainTimeout)+closeTime)
	files, err := strconv.Atoi(values["LimitNOFILE"])
	require.NoError(t, err)
	assert.GreaterOrEqual(t, files*3/4, cfg.Limits.MaxConnections)
	assert.Equal(t, strconv.Itoa(exitUsage), values["RestartPreventExitStatus"])
	assert.Equal(t, "/bin/kill -HUP $MAINPID", values["ExecReload"])
}

func TestDeployDockerfile(t *testing.T) {
	text := deployFile(t, "Dockerfile")
	cfg := deployConfig(t, deployFile(t, "container.yaml"))
	instruction := func(pattern string) string {
		m := regexp.MustCompile(`(?m)^` + pattern + `$`).FindStringSubmatch(text)
		require.NotNil(t, m, pattern)
		return m[1]
	}
	var entry, arguments, check []string
	require.NoError(t, json.Unmarshal([]byte(instruction(`ENTRYPOINT (.*)`)), &entry))
	require.NoError(t, json.Unmarshal([]byte(instruction(`CMD (.*)`)), &arguments))
	require.NoError(t, json.Unmarshal([]byte(instruction(`HEALTHCHECK .* CMD (.*)`)), &check))
	assert.Equal(t, instruction(`COPY --from=build \S+ (\S+)`), entry[0])
	assert.Equal(t, []string{"serve", "--config", instruction(`COPY deploy/container.yaml (\S+)`)}, arguments)
	assert.Equal(t, append(entry, "ping"), check[:2])

	// The health check connects to the port that is served: the default.
	require.Len(t, cfg.Listen, 1)
	assert.Equal(t, "tcp://0.0.0.0:7557", cfg.Listen[0].Address)
	// The index can be filled, and nobody empties it.
	assert.Equal(t, access.All&^(access.Reset|access.Holders), cfg.Listen[0].Permissions())
	assert.Equal(t, "7557 9557", instruction(`EXPOSE (.*)`))
	assert.Equal(t, "0.0.0.0:9557", cfg.Metrics)
	assert.Contains(t, deployFile(t, "../.dockerignore"), "\n!deploy/container.yaml\n")

	// The compiler is as new as go.mod wants it.
	module, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	assert.Contains(t, string(module), "\ngo "+instruction(`FROM \S+ golang:(\S+) AS build`)+".")
	// The variables that the linker sets; internal/buildinfo tests that they exist.
	assert.Equal(t, "github.com/hitline/hitline/internal/buildinfo", instruction(`ARG BUILDINFO=(\S+)`))
	for _, name := range []string{"version", "commit", "date"} {
		assert.Contains(t, text, "-X $BUILDINFO."+name+"=")
	}
}

// The commented lines for snapshots are right: where the file is, and a grace period for the last one.
func TestDeploySnapshots(t *testing.T) {
	uncommented := regexp.MustCompile(`(?m)^( *)# ?(memory: \{.*|terminationGracePeriodSeconds: .*|- \{name: state, .*)$`)
	needed := time.Duration(config.Default().DrainTimeout) + closeTime + lastSnapshotTimeout
	lines := func(name, pattern string) []string {
		text := uncommented.ReplaceAllString(deployFile(t, name), "$1$2")
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, found, name)
		return found[len(found)-1]
	}
	folders := map[string]string{
		"kubernetes.yaml": lines("kubernetes.yaml", `name: state, mountPath: ([^}]+)\}`)[1],
		"container.yaml":  "/var/lib/hitline",
		"hitline.service": "/var/lib/" + lines("hitline.service", `(?m)^#StateDirectory=(.*)$`)[1],
	}
	for _, name := range []string{"kubernetes.yaml", "container.yaml"} {
		cfg := deployConfig(t, "backend:\n  "+lines(name, `(?m)^ *(memory: \{.*)$`)[1]+"\n")
		assert.Equal(t, folders[name], filepath.Dir(cfg.Backend.Memory.Snapshot.Path), name)
	}
	assert.Contains(t, deployFile(t, "hitline.service"), folders["hitline.service"]+"/index.snapshot")
	for name, pattern := range map[string]string{
		"kubernetes.yaml": `terminationGracePeriodSeconds: (\d+)`, "hitline.service": `(?m)^#TimeoutStopSec=(\d+)$`, "container.yaml": `--stop-timeout (\d+)`,
	} {
		grace, err := strconv.Atoi(lines(name, pattern)[1])
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Duration(grace)*time.Second, needed, name)
	}
}
