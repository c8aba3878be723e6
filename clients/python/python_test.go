// Package python_test runs the tests of the Python client, against a server built
// from this tree.
package python_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/conformance"
)

// lacks skips the test; with CI=true nothing may be lacking.
func lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// command prepares a command with the environment that all of them get.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=error")
	return cmd
}

// python3 returns a Python that the client supports.
func python3(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Python")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		lacks(t, "no python3: %v", err)
	}
	if out, err := command(t, python, "-c", "import sys; sys.exit(sys.version_info < (3, 9))").CombinedOutput(); err != nil {
		lacks(t, "python3 is older than 3.9, or does not run: %v\n%s", err, out)
	}
	return python
}

func TestClient(t *testing.T) {
	python := python3(t)
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "hitline")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/hitline").CombinedOutput()
	require.NoError(t, err, "%s", out)

	environ := []string{
		"HITLINE_TEST_BINARY=" + binary,
		"HITLINE_TEST_CERTS=" + certificates(t),
		"HITLINE_TEST_RELEASES=" + releaseVectors(t),
	}
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		unittests(t, python, environ, "discover", "-v", "-s", "tests", "-t", ".")
	})
	t.Run("in vLLM's modules", func(t *testing.T) {
		t.Parallel()
		configs := configVectors(t)
		environ := append(environ[:2:2], "HITLINE_TEST_WHEELS="+vllmModules(t, python), "HITLINE_TEST_CONFIGS="+configs)
		// In one process, as each compiles and executes the modules for itself.
		unittests(t, python, environ, "-v", "tests.test_wheels", "tests.test_engine_start", "tests.test_load_failures",
			"tests.test_local_lookups", "tests.test_lookup_stats", "tests.test_engine_pool", "tests.test_vllm_builds")
		checkDescriptions(t, configs)
	})
}

// unittests runs tests and logs how many, with how many vectors, and which were skipped.
func unittests(t *testing.T, python string, environ []string, args ...string) {
	cmd := command(t, python, append([]string{"-m", "unittest"}, args...)...)
	cmd.Env = append(cmd.Env, environ...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for line := range strings.Lines(string(out)) {
		_, counts, found := strings.Cut(line, "wire vectors: ")
		_, wheel, inWheel := strings.Cut(line, "wheel of ")
		switch {
		case found, inWheel:
			t.Log(strings.TrimSpace(counts + wheel))
		case strings.Contains(line, "skipped") || strings.HasPrefix(line, "Ran "):
			t.Log(strings.TrimSpace(line))
		}
	}
}

// vllmModules returns a folder with the connector's modules of vLLM's releases. They are kept in the user's cache.
func vllmModules(t *testing.T, python string) string {
	if out, err := command(t, python, "-c", "import sys; sys.exit(sys.version_info < (3, 10))").CombinedOutput(); err != nil {
		lacks(t, "python3 is older than 3.10, which vLLM needs: %v\n%s", err, out)
	}
	dir, err := command(t, python, "../../scripts/reference", "--modules").Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		lacks(t, "cannot fetch modules of vLLM's wheels: %v\n%s", err, exit.Stderr)
	}
	return strings.TrimSpace(string(dir))
}

// certificates writes two authorities to a folder, and certificates that they have signed.
func certificates(t *testing.T) string {
	dir := t.TempDir()
	ca, other := certtest.NewCA("ca"), certtest.NewCA("other")
	ca.WriteFile(filepath.Join(dir, "ca.crt"))
	other.WriteFile(filepath.Join(dir, "other.crt"))
	here := []string{"127.0.0.1", "::1", "localhost", "pool"}
	certtest.WriteFiles(dir, "server", ca.Leaf(here...))
	certtest.WriteFiles(dir, "elsewhere", ca.Leaf("elsewhere.example"))
	certtest.WriteFiles(dir, "expired", ca.LeafUntil(time.Now().Add(-time.Minute), here...))
	certtest.WriteFiles(dir, "engine", ca.Leaf("engine.example"))
	certtest.WriteFiles(dir, "guest", ca.Leaf("guest.example"))
	certtest.WriteFiles(dir, "stranger", other.Leaf("engine.example"))
	return dir
}

// releaseVectors writes what the clients of vLLM's releases sent and returned to a folder
// with a file for each recorded release.
func releaseVectors(t *testing.T) string {
	return writeReleases[struct {
		Reference   json.RawMessage `json:"reference"`
		ClientCases json.RawMessage `json:"client_cases"`
		DecodeCases json.RawMessage `json:"decode_cases,omitempty"`
	}](t, "wire.json", "")
}

// configVectors writes configurations of engines of vLLM's releases to a folder, with a file
// for each recorded release.
func configVectors(t *testing.T) string {
	return writeReleases[struct {
		Reference json.RawMessage `json:"reference"`
		Cases     json.RawMessage `json:"cases"`
	}](t, "config.json", "config-")
}

// writeReleases writes the lists that Vectors has of a file of each release to a folder, as
// prefix and the release.
func writeReleases[Vectors any](t *testing.T, name, prefix string) string {
	dir := t.TempDir()
	for _, release := range conformance.Releases {
		var vectors Vectors
		conformance.LoadLists(t, "releases/"+release+"/"+name, &vectors)
		text, err := json.Marshal(vectors)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, prefix+release+".json"), text, 0o600))
	}
	return dir
}

// checkDescriptions checks that the pools which the Python client has described, in a folder of configVectors, are
// those of the engines.
func checkDescriptions(t *testing.T, dir string) {
	cases := map[string][]conformance.ConfigCase{} // by the newest release with equal answers
	for _, folder := range conformance.Releases {
		var vectors struct{ Cases []conformance.ConfigCase }
		conformance.Load(t, "releases/"+folder+"/config.json", &vectors)
		cases[conformance.Newest((&coordinator.Pool{VLLM: folder}).FittingReleases())] = vectors.Cases
	}
	for _, release := range coordinator.Releases() {
		text, err := os.ReadFile(filepath.Join(dir, "described-"+release+".json"))
		require.NoError(t, err)
		var described map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &described))
		fitting := strings.Split((&coordinator.Pool{VLLM: release}).FittingReleases(), ", ")
		recorded := cases[fitting[len(fitting)-1]]
		compared := 0
		for i := range recorded {
			c := &recorded[i]
			want := c.Expected(release)
			require.Equal(t, want.Stage != "block_sizes", described[c.ID] != nil, "%s: %s", release, c.ID)
			if want.Error == "ValueError" { // of the connector, which refuses more than a coordinator
				continue
			}
			decoder := json.NewDecoder(bytes.NewReader(described[c.ID]))
			decoder.DisallowUnknownFields()
			var pool coordinator.Pool
			require.NoError(t, decoder.Decode(&pool), "%s: %s", release, c.ID)
			made, err := coordinator.New(pool)
			if want.Error != "" {
				require.ErrorIs(t, err, coordinator.ErrPrecondition, "%s: %s: %s", release, c.ID, want.Error)
				continue
			}
			require.NoError(t, err, "%s: %s", release, c.ID)
			require.Equal(t, want.CapacityOnly, pool.CapacityOnly, "%s: %s", release, c.ID)
			if want.CapacityOnly { // of which nothing else is recorded
				continue
			}
			require.Equal(t, want.RetentionInterval, pool.RetentionInterval, "%s: %s", release, c.ID)
			engines := enginesPool(t, c, release, &pool)
			configured, err := coordinator.New(engines)
			require.NoError(t, err, "%s: %s", release, c.ID)
			require.Empty(t, configured.Compare(engines, made), "%s: %s", release, c.ID)
			compared++
		}
		require.Positive(t, compared, release)
		t.Logf("vLLM %s: %d described pools are those of the engines", release, compared)
	}
}

// enginesPool returns the pool of a case. Groups that are not kept in the store have the block sizes of described, as
// nothing depends on them.
func enginesPool(t *testing.T, c *conformance.ConfigCase, release string, described *coordinator.Pool) coordinator.Pool {
	want, sharing := c.Expected(release), described.KVCacheLayout != "" // from 0.30.0 on
	text, err := c.PoolJSON(want, sharing)
	require.NoError(t, err)
	pool := coordinator.Pool{VLLM: release}
	require.NoError(t, json.Unmarshal(text, &pool))
	releases := coordinator.Releases()
	if c.VLLM.UseMLA && slices.Index(releases, release) < slices.Index(releases, "0.27.0") {
		pool.NumKVHead = 1
	}
	require.Len(t, described.Groups, len(pool.Groups))
	for g := range pool.Groups {
		pool.Groups[g].Uniform = pool.Groups[g].Uniform && sharing // it matters from then on
		if pool.Groups[g].MambaCacheMode == "none" {
			pool.Groups[g].MambaCacheMode = "" // its default
		}
		if !slices.Contains(want.StoreGroups, g) {
			pool.Groups[g].BlockSize = described.Groups[g].BlockSize
		}
	}
	return pool
}

// installed is run where only the installed package can be found.
const installed = `
import importlib.metadata, inspect, os
import hitline
assert hitline.__file__.startswith(os.environ["HITLINE_TEST_VENV_DIR"]), hitline.__file__
assert os.path.exists(os.path.join(os.path.dirname(hitline.__file__), "py.typed"))
every = importlib.metadata.distribution("hitline").entry_points
(entry,) = [e for e in every if e.group == "vllm.general_plugins"]
register = entry.load()
assert not inspect.signature(register).parameters
register()
assert importlib.metadata.requires("hitline") is None
print("installed")
`

// The package installs with pip from a checkout, and vLLM finds the plug-in.
func TestInstall(t *testing.T) {
	python := python3(t)
	t.Parallel()
	dir := t.TempDir()
	venv := filepath.Join(dir, "venv")
	// Without a pip of its own, whose installation takes longer than all else here.
	if out, err := pip(t, python, "-m", "venv", "--without-pip", venv); err != nil {
		lacks(t, "no virtual environment: %v\n%s", err, out)
	}
	out, err := pip(t, python, "-m", "pip", "install", "--quiet", "--ignore-installed", "--prefix", venv, ".")
	if err != nil && strings.Contains(out, "No matching distribution found for hatchling") {
		lacks(t, "pip cannot fetch hatchling, which builds the package:\n%s", out)
	}
	require.NoError(t, err, "%s", out)
	cmd := command(t, filepath.Join(venv, "bin", "python"), "-c", installed)
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, "HITLINE_TEST_VENV_DIR="+venv, "HITLINE_ADDRESS=")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Equal(t, "installed\n", string(said))
}

// pip runs a tool whose warnings are its own affair.
func pip(t *testing.T, python string, args ...string) (output string, err error) {
	cmd := command(t, python, args...)
	cmd.Env = append(cmd.Env, "PYTHONWARNINGS=default", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_RETRIES=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// copyInto copies a file or folder of this directory into another.
func copyInto(target, name string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(filepath.Join(target, name), os.DirFS(name))
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(target, name), text, 0o644)
}
