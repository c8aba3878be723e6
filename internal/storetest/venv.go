package storetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// venv is a Python virtual environment with a few packages.
type venv struct {
	dir      string       // where it is, or is to be
	packages []string     // name==version of each
	verify   func() error // returns why it cannot be used
}

// python returns the path of the environment's Python.
func (v venv) python() string { return filepath.Join(v.dir, "bin", "python") }

// install creates the environment unless it verifies.
func (v venv) install() error {
	if v.verify() == nil {
		return nil
	}
	root := filepath.Dir(v.dir)
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	// Build it in another directory and rename that, so that concurrent tests see all or
	// nothing of it.
	fresh, err := os.MkdirTemp(root, "building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := buildVenv(fresh, v.packages); err != nil {
		return err
	}
	if err := os.Rename(fresh, v.dir); err != nil && v.verify() != nil {
		_ = os.RemoveAll(v.dir) // of an older Python that is no longer installed
		if err := os.Rename(fresh, v.dir); err != nil {
			return err
		}
	}
	return v.verify()
}

// buildVenv creates an environment in dir and installs the packages.
func buildVenv(dir string, packages []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	install := []string{
		filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
		"--retries=1", "--only-binary=:all:",
	}
	for _, args := range [][]string{{"python3", "-m", "venv", dir}, append(install, packages...)} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, lastLine(out))
		}
	}
	return nil
}

// cacheDir returns the directory of an environment: below the one that the environment
// variable names, or in the user's cache.
func cacheDir(variable, name, version string) (string, error) {
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

// lastLine returns the last line of a program's output.
func lastLine(out []byte) string {
	text := strings.TrimSpace(string(out))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
