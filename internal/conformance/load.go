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

// envDir is the environment variable with the directory that replaces the embedded vectors.
const envDir = "HITLINE_CONFORMANCE"

// extraPrefix is the prefix of the files that are always the embedded ones.
const extraPrefix = "extra/"

//go:embed testdata/*.json.gz testdata/later/*.json.gz testdata/docpage/*.json.gz testdata/extra/*.json.gz testdata/releases/*/*.json.gz
var embedded embed.FS

// Load decodes the file name into v, as json.Unmarshal does. It fails the test at once if the
// file is missing, does not parse or has no case.
func Load(tb testing.TB, name string, v any) {
	tb.Helper()
	if err := load(os.Getenv(envDir), name, v); err != nil {
		tb.Fatal(err)
	}
}

// LoadLists is Load for a file whose lists of cases have other names than "cases".
func LoadLists(tb testing.TB, name string, v any) {
	tb.Helper()
	text, err := read(os.Getenv(envDir), name)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		tb.Fatalf("conformance: %s: %v", name, err)
	}
}

// load is Load with the directory as an argument.
func load(dir, name string, v any) error {
	text, err := read(dir, name)
	if err != nil {
		return fmt.Errorf("conformance: %w", err)
	}
	var probe struct {
		Cases       []json.RawMessage `json:"cases"`
		ClientCases []json.RawMessage `json:"client_cases"` // wire.json of releases
	}
	if err := json.Unmarshal(text, &probe); err != nil {
		return fmt.Errorf("conformance: %s: %w", name, err)
	}
	if len(probe.Cases)+len(probe.ClientCases) == 0 {
		return fmt.Errorf("conformance: %s: the file holds no cases", name)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("conformance: %s: %w", name, err)
	}
	return nil
}

// read returns the text of a file: from dir, or the embedded one if dir is empty.
func read(dir, name string) ([]byte, error) {
	if dir != "" && !strings.HasPrefix(name, extraPrefix) {
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

// resolve makes dir absolute, relative to the module root. Tests run in the directory of
// their package.
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
			return "", errors.New("no go.mod above the test's directory: give " + envDir + " as an absolute path")
		}
		root = parent
	}
}
