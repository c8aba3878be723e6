package conformance

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// EnvDir names the environment variable that replaces the embedded vectors by
// the files of a directory.
const EnvDir = "HITLINE_CONFORMANCE"

// extra begins the names of the files that are always the embedded ones.
const extra = "extra/"

//go:embed testdata/*.json.gz testdata/later/*.json.gz testdata/docpage/*.json.gz testdata/extra/*.json.gz
var embedded embed.FS

// Load decodes the file name into into, which json.Unmarshal must accept. It
// ends the test if the file is missing, does not parse or holds no case.
func Load(tb testing.TB, name string, into any) {
	tb.Helper()
	if err := load(os.Getenv(EnvDir), name, into); err != nil {
		tb.Fatal(err)
	}
}

func load(dir, name string, into any) error {
	text, err := read(dir, name)
	if err != nil {
		return fmt.Errorf("conformance: %w", err)
	}
	var probe struct {
		Cases []json.RawMessage `json:"cases"`
	}
	if err := json.Unmarshal(text, &probe); err != nil {
		return fmt.Errorf("conformance: %s: %w", name, err)
	}
	if len(probe.Cases) == 0 {
		return fmt.Errorf("conformance: %s: the file holds no cases", name)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("conformance: %s: %w", name, err)
	}
	return nil
}

// read returns the text of a file, out of dir unless that is empty.
func read(dir, name string) ([]byte, error) {
	if dir != "" && !strings.HasPrefix(name, extra) {
		root, err := resolve(dir)
		if err != nil {
			return nil, err
		}
		return os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	}
	packed, err := embedded.ReadFile("testdata/" + name + ".gz")
	if err != nil {
		return nil, err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return io.ReadAll(unpacked)
}

// resolve makes dir absolute. Tests run in the directory of their package, so a
// relative directory is taken from the module root instead.
func resolve(dir string) (string, error) {
	if filepath.IsAbs(dir) {
		return dir, nil
	}
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return filepath.Join(root, dir), nil
		}
		parent := filepath.Dir(root)
		if parent == root {
			return "", errors.New("no go.mod above the test's directory: give " + EnvDir + " as an absolute path")
		}
		root = parent
	}
}
