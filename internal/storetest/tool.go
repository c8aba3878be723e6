package storetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Patience bounds every wait for a store.
const Patience = 20 * time.Second

// Missing skips a test for want of something, or fails it in CI.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI must have all: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Eventually waits until a condition holds.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !is(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "it takes too long until %s", what)
	}
}

// venv is a Python environment with one package in it.
type venv struct {
	dir  string       // where it is, or is to be
	pip  string       // name==version
	good func() error // tells why it is of no use
}

func (v venv) python() string { return filepath.Join(v.dir, "bin", "python") }

// installed makes the environment, if it is not there.
func (v venv) installed() error {
	if v.good() == nil {
		return nil
	}
	root := filepath.Dir(v.dir)
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	// Built aside and renamed, so that of two tests at once neither sees half of it.
	fresh, err := os.MkdirTemp(root, "building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := buildVenv(fresh, v.pip); err != nil {
		return err
	}
	if err := os.Rename(fresh, v.dir); err != nil && v.good() != nil {
		_ = os.RemoveAll(v.dir) // left by an older Python that is gone
		if err := os.Rename(fresh, v.dir); err != nil {
			return err
		}
	}
	return v.good()
}

func buildVenv(dir, pip string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"python3", "-m", "venv", dir},
		{filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=1",
			"--only-binary=:all:", pip},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, lastLine(out))
		}
	}
	return nil
}

// cached returns the place of an environment: below the directory that a variable
// names, or in the user's cache.
func cached(variable, name, version string) (string, error) {
	root := os.Getenv(variable)
	if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		root = filepath.Join(cache, name)
	}
	return filepath.Join(root, version), nil
}

func lastLine(out []byte) string {
	text := strings.TrimSpace(string(out))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
