package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
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
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/lookup/access"
)

// The chart needs helm to be rendered: scripts/check-chart does that, and compares with the golden files that are
// read here.
const chartTestdata = "helm/testdata/right/"

// chartObjects returns the objects of a golden file by kind, but for the dashboard.
func chartObjects(t *testing.T, name string) map[string]any {
	t.Helper()
	objects := map[string]any{}
	for text := range strings.SplitSeq(deployFile(t, chartTestdata+name+".golden"), "---\n") {
		var object map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &object), text)
		if kind, ok := object["kind"].(string); ok && !strings.HasSuffix(at(t, object, "metadata", "name").(string), "-dashboard") {
			require.NotContains(t, objects, kind)
			objects[kind] = object
		}
	}
	return objects
}

// chartSets returns the names of all golden files.
func chartSets(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/" + chartTestdata + "*.golden")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 3)
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".golden"))
	}
	return names
}

// chartSecrets is what the Secrets have, by the paths at which the chart mounts them.
func chartSecrets(t *testing.T) *strings.Replacer {
	t.Helper()
	dir := t.TempDir()
	ca := certtest.NewCA("authority")
	for _, name := range []string{"tls", "tokens", "redis", "peer", "state"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	cert, key := certtest.WriteFiles(filepath.Join(dir, "tls"), "server", ca.Leaf("hitline"))
	require.NoError(t, os.Rename(cert, filepath.Join(dir, "tls", "tls.crt")))
	require.NoError(t, os.Rename(key, filepath.Join(dir, "tls", "tls.key")))
	ca.WriteFile(filepath.Join(dir, "tls", "ca.crt"))
	ca.WriteFile(filepath.Join(dir, "redis", "ca.crt"))
	digest := strings.Repeat("0f", 32)
	tokens := "tokens:\n  - {name: writer, sha256: " + digest + ", allow: [ping, store, evict]}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokens", "tokens.yaml"), []byte(tokens), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "peer", "token"), []byte("0123456789abcdef\n"), 0o600))
	return strings.NewReplacer("/run/secrets/hitline", dir, "/var/lib/hitline", filepath.Join(dir, "state"))
}

// below returns the value below a path, or nil where there is none.
func below(document any, path ...string) any {
	for _, step := range path {
		fields, ok := document.(map[string]any)
		if !ok {
			return nil
		}
		document = fields[step]
	}
	return document
}

// byName returns the elements of a list by a field.
func byName(t *testing.T, list any, field string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	elements, _ := list.([]any)
	for _, e := range elements {
		all[at(t, e, field).(string)] = e.(map[string]any)
	}
	return all
}

// quantityBytes returns a quantity of memory in bytes.
func quantityBytes(t *testing.T, quantity any) int64 {
	t.Helper()
	var bytes config.Size
	require.NoError(t, bytes.UnmarshalText([]byte(quantity.(string)+"B")))
	return int64(bytes)
}

// neededMemory returns what docs/operations.md says of the memory of the process, in bytes.
func neededMemory(cfg *config.Config) int64 {
	index, maxMemory := int64(0), int64(1638<<20)
	if cfg.Backend.Name() == "memory" {
		index, maxMemory = int64(cfg.Backend.Memory.MaxBytes), 128<<20
	}
	fleet := int64(0)
	if cfg.Fleet.Listen != nil {
		for _, m := range cfg.Fleet.Models {
			fleet += int64(cmp.Or(m.MaxBytes, cfg.Fleet.MaxBytes))
		}
		fleet = max(fleet, int64(cfg.Fleet.MaxBytes))
	}
	return index + fleet + 2*cmp.Or(int64(cfg.Limits.MaxMemory), maxMemory) + 100<<20
}

// What the chart renders works: serve takes hitline.yaml with the variables of the container, and each port, file
// and time of the pod is one that serve has.
func TestDeployChart(t *testing.T) {
	mount := chartSecrets(t)
	for _, name := range chartSets(t) {
		t.Run(name, func(t *testing.T) {
			objects := chartObjects(t, name)
			text := at(t, objects["ConfigMap"], "data", "hitline.yaml").(string)
			spec := at(t, objects["Deployment"], "spec", "template", "spec")
			container := at(t, spec, "containers", 0)

			for variable, e := range byName(t, below(container, "env"), "name") {
				value, ok := e["value"].(string)
				if !ok {
					require.Equal(t, "HITLINE_BACKEND_REDIS_URL", variable)
					require.NotEmpty(t, at(t, e, "valueFrom", "secretKeyRef", "name"))
					require.NotEmpty(t, at(t, e, "valueFrom", "secretKeyRef", "key"))
					value = mount.Replace("rediss://user:password@redis:6379?ca=/run/secrets/hitline/redis/ca.crt")
				}
				t.Setenv(variable, value)
			}
			r := hitline(t, "", "serve", "--config", configFile(t, mount.Replace(text)), "--check")
			require.Zero(t, r.code, r.stderr)
			cfg, err := config.Load(config.Source{File: configFile(t, text), Environ: os.Environ()})
			require.NoError(t, err)

			checkChartPorts(t, objects, cfg)
			checkChartMounts(t, spec, cfg)
			assert.NotRegexp(t, `//[^/@\s]*:[^/@\s]+@`, text, "a ConfigMap has no passwords")
			grace := time.Duration(cfg.DrainTimeout) + closeTime
			if cfg.Backend.Memory.Snapshot.Path != "" {
				grace += lastSnapshotTimeout
			}
			assert.GreaterOrEqual(t, seconds(t, at(t, spec, "terminationGracePeriodSeconds")), grace)
			assert.Equal(t, false, at(t, spec, "enableServiceLinks"))
			memory := cfg.Backend.Name() == "memory"
			if memory {
				assert.EqualValues(t, 1, at(t, objects["Deployment"], "spec", "replicas"))
				assert.Equal(t, "Recreate", at(t, objects["Deployment"], "spec", "strategy", "type"))
			} else {
				assert.Equal(t, "RollingUpdate", at(t, objects["Deployment"], "spec", "strategy", "type"))
			}
			assert.GreaterOrEqual(t, quantityBytes(t, at(t, container, "resources", "limits", "memory")), neededMemory(cfg))
			// A store that cannot be reached makes /readyz 503, which must not restart a pod.
			startup := "/readyz"
			if !memory || cfg.Fleet.Listen != nil {
				startup = "/healthz"
			}
			for probe, path := range map[string]string{"startupProbe": startup, "readinessProbe": "/readyz", "livenessProbe": "/healthz"} {
				assert.Equal(t, path, at(t, container, probe, "httpGet", "path"), probe)
				assert.Equal(t, "metrics", at(t, container, probe, "httpGet", "port"), probe)
			}
			if pdb, ok := objects["PodDisruptionBudget"]; ok {
				assert.EqualValues(t, 1, at(t, pdb, "spec", "maxUnavailable"))
				assert.Greater(t, at(t, objects["Deployment"], "spec", "replicas"), uint64(1))
			}
		})
	}
}

// checkChartPorts compares the ports of the container, Service, network policy, annotations and test pod with those
// that serve listens on.
func checkChartPorts(t *testing.T, objects map[string]any, cfg *config.Config) {
	t.Helper()
	want := map[string]string{}
	for _, l := range cfg.Listen {
		name := map[string]string{"tcp": "lookup", "tls": "lookup-tls"}[strings.SplitN(l.Address, "://", 2)[0]]
		require.NotContains(t, want, name)
		want[name] = l.Address[strings.LastIndex(l.Address, ":")+1:]
		if name == "lookup" {
			assert.Empty(t, l.Tokens)
		} else {
			assert.NotNil(t, l.TLS)
		}
	}
	if cfg.Fleet.Listen != nil {
		want["fleet"] = cfg.Fleet.Listen.Address[strings.LastIndex(cfg.Fleet.Listen.Address, ":")+1:]
	}
	template := at(t, objects["Deployment"], "spec", "template")
	labels := at(t, template, "metadata", "labels").(map[string]any)
	selectors := map[string]any{
		"Deployment": at(t, objects["Deployment"], "spec", "selector", "matchLabels"),
		"Service":    at(t, objects["Service"], "spec", "selector"),
	}
	service, policy := map[string]string{}, map[string]bool{}
	for name, p := range byName(t, at(t, objects["Service"], "spec", "ports"), "name") {
		assert.Equal(t, name, p["targetPort"])
		service[name] = strconv.FormatUint(p["port"].(uint64), 10)
	}
	assert.Equal(t, want, service, "the Service has every listener")
	if object, ok := objects["NetworkPolicy"]; ok {
		selectors["NetworkPolicy"] = at(t, object, "spec", "podSelector", "matchLabels")
		for _, p := range at(t, object, "spec", "ingress", 0, "ports").([]any) {
			policy[at(t, p, "port").(string)] = true
		}
		assert.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(policy)), "clients reach every listener")
		assert.NotEmpty(t, at(t, object, "spec", "ingress", 0, "from", 0, "podSelector", "matchLabels"))
		assert.Equal(t, []any{map[string]any{"port": "metrics"}}, at(t, object, "spec", "ingress", 1, "ports"))
		assert.NotEmpty(t, at(t, object, "spec", "ingress", 1, "from", 0, "namespaceSelector", "matchLabels"))
	}
	for kind, path := range map[string][]any{"PodDisruptionBudget": {"spec", "selector", "matchLabels"}, "PodMonitor": {"spec", "selector", "matchLabels"}} {
		if object, ok := objects[kind]; ok {
			selectors[kind] = at(t, object, path...)
		}
	}
	for kind, selector := range selectors {
		require.NotEmpty(t, selector, kind)
		for label, value := range selector.(map[string]any) {
			assert.Equal(t, value, labels[label], "%s selects the pods by %s", kind, label)
		}
	}
	if pod, ok := objects["Pod"]; ok { // of helm test
		connect := at(t, pod, "spec", "containers", 0, "args", 2).(string)
		assert.True(t, strings.HasSuffix(connect, ":"+want["lookup"]), connect)
		for kind, selector := range selectors { // it is none of the servers
			matches := true
			for label, value := range selector.(map[string]any) {
				matches = matches && at(t, pod, "metadata", "labels").(map[string]any)[label] == value
			}
			assert.False(t, matches, kind)
		}
	}
	if monitor, ok := objects["PodMonitor"]; ok {
		endpoint := at(t, monitor, "spec", "podMetricsEndpoints", 0)
		assert.Equal(t, "metrics", at(t, endpoint, "port"))
		// deploy/alerts.yaml expects this job.
		assert.Equal(t, map[string]any{"targetLabel": "job", "replacement": "hitline"}, at(t, endpoint, "relabelings", 0))
	}
	want["metrics"] = cfg.Metrics[strings.LastIndex(cfg.Metrics, ":")+1:]
	if annotation := below(template, "metadata", "annotations", "prometheus.io/port"); annotation != nil {
		assert.Equal(t, want["metrics"], annotation)
	}
	ports := map[string]string{}
	for name, p := range byName(t, at(t, template, "spec", "containers", 0, "ports"), "name") {
		ports[name] = strconv.FormatUint(p["containerPort"].(uint64), 10)
	}
	assert.Equal(t, want, ports, "the container has every listener")
}

// checkChartMounts compares the volumes with the files of the configuration.
func checkChartMounts(t *testing.T, spec any, cfg *config.Config) {
	t.Helper()
	volumes := byName(t, at(t, spec, "volumes"), "name")
	mounts := byName(t, at(t, spec, "containers", 0, "volumeMounts"), "name")
	assert.Equal(t, slices.Sorted(maps.Keys(volumes)), slices.Sorted(maps.Keys(mounts)))
	folders := map[string]bool{} // of Secrets, and whether a file of them is named
	for name, volume := range volumes {
		mount := mounts[name]
		if secret, ok := volume["secret"]; ok {
			assert.EqualValues(t, 0o440, at(t, secret, "defaultMode"), name)
			folders[mount["mountPath"].(string)] = false
		}
		assert.Equal(t, volume["persistentVolumeClaim"] == nil, mount["readOnly"] == true, name)
	}
	assert.Equal(t, at(t, spec, "securityContext", "runAsGroup"), at(t, spec, "securityContext", "fsGroup"))
	listeners := cfg.Listen
	if cfg.Fleet.Listen != nil {
		listeners = append(slices.Clone(listeners), *cfg.Fleet.Listen)
	}
	for _, l := range listeners {
		for _, file := range l.Files() {
			require.Contains(t, folders, filepath.Dir(file), "only a Secret has what may be secret")
			folders[filepath.Dir(file)] = true
		}
	}
	if cfg.Backend.Name() == "redis" {
		folders["/run/secrets/hitline/redis"] = true // the URL names its files
	}
	if file := cfg.Fleet.PeerTokenFile; file != "" {
		require.Contains(t, folders, filepath.Dir(file))
		folders[filepath.Dir(file)] = true
	}
	for folder, used := range folders {
		assert.True(t, used, "nothing uses the Secret at %s", folder)
	}
	config := at(t, mounts["config"], "mountPath").(string)
	assert.Equal(t, []any{"serve", "--config", config + "/hitline.yaml"}, at(t, spec, "containers", 0, "args"))
	if path := cfg.Backend.Memory.Snapshot.Path; path != "" {
		assert.Equal(t, filepath.Dir(path), at(t, mounts["state"], "mountPath"))
	} else {
		assert.NotContains(t, mounts, "state")
	}
}

// The set "manifests" renders what deploy/kubernetes.yaml has.
func TestDeployChartIsTheManifests(t *testing.T) {
	chart := chartObjects(t, "manifests")
	plain := map[string]any{}
	for text := range strings.SplitSeq(deployFile(t, "kubernetes.yaml"), "\n---\n") {
		var document map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &document))
		plain[document["kind"].(string)] = document
	}
	of := func(objects map[string]any) *config.Config {
		return deployConfig(t, at(t, objects["ConfigMap"], "data", "hitline.yaml").(string))
	}
	assert.Equal(t, of(plain).Backend, of(chart).Backend)
	assert.Equal(t, of(plain).Pool, of(chart).Pool)
	assert.Equal(t, of(plain).DrainTimeout, of(chart).DrainTimeout)
	assert.Equal(t, of(plain).Log, of(chart).Log)
	assert.Equal(t, of(plain).Metrics, of(chart).Metrics)
	require.Len(t, of(chart).Listen, len(of(plain).Listen))
	for i, l := range of(plain).Listen {
		assert.Equal(t, l.Address, of(chart).Listen[i].Address)
		assert.Equal(t, l.Permissions(), of(chart).Listen[i].Permissions())
		assert.Equal(t, l.Files(), of(chart).Listen[i].Files())
	}
	assert.Equal(t, access.ReadOnly|access.Pool, of(chart).Listen[0].Permissions())

	for _, path := range [][]any{
		{"securityContext"}, {"terminationGracePeriodSeconds"}, {"automountServiceAccountToken"},
		{"containers", 0, "args"}, {"containers", 0, "ports"}, {"containers", 0, "securityContext"},
		{"containers", 0, "readinessProbe"}, {"containers", 0, "livenessProbe"}, {"containers", 0, "startupProbe", "httpGet"},
		{"containers", 0, "volumeMounts"},
	} {
		full := append([]any{"spec", "template", "spec"}, path...)
		assert.Equal(t, at(t, plain["Deployment"], full...), at(t, chart["Deployment"], full...), path)
	}
	for _, kind := range []string{"requests", "limits"} {
		path := []any{"spec", "template", "spec", "containers", 0, "resources", kind, "memory"}
		assert.Equal(t, quantityBytes(t, at(t, plain["Deployment"], path...)), quantityBytes(t, at(t, chart["Deployment"], path...)))
	}
	for kind, path := range map[string][]any{
		"Deployment": {"spec", "strategy"}, "Service": {"spec", "ports"}, "NetworkPolicy": {"spec", "ingress"},
	} {
		assert.Equal(t, at(t, plain[kind], path...), at(t, chart[kind], path...), kind)
	}
}

// values.yaml, its schema and the table of the README name the same values, with the same defaults; the schema has the
// fields of hitline.yaml.
func TestDeployChartValues(t *testing.T) {
	var schema, values map[string]any
	require.NoError(t, json.Unmarshal([]byte(deployFile(t, "helm/hitline/values.schema.json")), &schema))
	require.NoError(t, yaml.Unmarshal([]byte(deployFile(t, "helm/hitline/values.yaml")), &values))
	readme := deployFile(t, "helm/hitline/README.md")

	var ofSchema, ofValues, ofReadme []string
	ofSchema = schemaPaths(schema, "")
	ofValues = valuePaths(values, schema, "")
	for _, m := range regexp.MustCompile("(?m)^\\| `([\\w.]+)` \\| ([^|]*)\\|").FindAllStringSubmatch(readme, -1) {
		ofReadme = append(ofReadme, m[1])
		value := any(values)
		for name := range strings.SplitSeq(m[1], ".") {
			value = value.(map[string]any)[name]
		}
		if value == "" { // the cell says what stands in its place
			continue
		}
		var want any
		require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(m[2], "`", "")), &want), m[1])
		assert.EqualValues(t, want, value, m[1])
	}
	assert.ElementsMatch(t, ofValues, ofSchema)
	assert.ElementsMatch(t, ofValues, ofReadme)

	properties := func(path ...any) []string {
		return slices.Sorted(maps.Keys(at(t, schema, append(path, "properties")...).(map[string]any)))
	}
	tags := func(section any, without ...string) (names []string) {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(section)) {
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if name != "" && !slices.Contains(without, name) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	backend := []any{"properties", "config", "properties", "backend"}
	assert.Equal(t, tags(config.Config{}, "ipc_mode"), properties("properties", "config"))
	assert.Equal(t, tags(config.Backend{}), properties(backend...))
	assert.Equal(t, tags(config.Memory{}), properties(append(backend, "properties", "memory")...))
	assert.Equal(t, tags(config.Redis{}), properties(append(backend, "properties", "redis")...))
	assert.Equal(t, tags(config.Mooncake{}), properties(append(backend, "properties", "mooncake")...))
	assert.Equal(t, tags(config.Log{}), properties("properties", "config", "properties", "log"))
}

// schemaPaths returns the values of a schema by their paths. What is below config and resources is not the chart's.
func schemaPaths(schema map[string]any, path string) (paths []string) {
	sections, ok := schema["properties"].(map[string]any)
	if !ok || path == "config" || path == "resources" {
		return []string{path}
	}
	for name, section := range sections {
		if name != "global" { // helm's own
			paths = append(paths, schemaPaths(section.(map[string]any), strings.TrimPrefix(path+"."+name, "."))...)
		}
	}
	return paths
}

// valuePaths returns those of values.yaml.
func valuePaths(values, schema map[string]any, path string) (paths []string) {
	for name, value := range values {
		full := strings.TrimPrefix(path+"."+name, ".")
		sections, _ := value.(map[string]any)
		ofSchema, _ := below(schema, "properties", name).(map[string]any)
		if sections != nil && ofSchema["properties"] != nil && full != "config" && full != "resources" {
			paths = append(paths, valuePaths(sections, ofSchema, full)...)
		} else {
			paths = append(paths, full)
		}
	}
	return paths
}
