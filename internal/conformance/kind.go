package conformance

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// RunKind judges all vectors of a kind, with a subtest and a report for each file. They are in
// the folder KIND of HITLINE_CONFORMANCE as *.json or, if there is none, in testdata/*.json.gz
// of the package under test. scripts/reference makes both. C is the type of a case.
func RunKind[C any](t *testing.T, kind string, judge func(c *C) Verdict) {
	t.Helper()
	names, err := kindFiles(os.Getenv(envDir), kind)
	if err != nil {
		t.Fatalf("conformance: %s: %v", kind, err)
	}
	if len(names) == 0 {
		t.Fatalf("conformance: %s: there are no vectors", kind)
	}
	for _, name := range names {
		release := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(name), ".gz"), ".json")
		t.Run(release, func(t *testing.T) {
			var file caseFile
			text, err := readFile(name)
			if err == nil {
				err = json.Unmarshal(text, &file)
			}
			if err != nil {
				t.Fatalf("conformance: %s: %v", name, err)
			}
			runCases(t, kind+"/"+release+".json", file.Cases, judge)
		})
	}
}

// kindFiles returns the paths of the files of a kind. Directories of vectors may be older than
// the kind, so one without its folder does not replace testdata.
func kindFiles(dir, kind string) ([]string, error) {
	if dir != "" {
		root, err := resolve(dir)
		if err != nil {
			return nil, err
		}
		folder := filepath.Join(root, kind)
		if _, err := os.Stat(folder); err == nil {
			return filepath.Glob(filepath.Join(folder, "*.json"))
		}
	}
	return filepath.Glob(filepath.Join("testdata", "*.json.gz"))
}

// readFile returns the text of a file, which may be compressed.
func readFile(name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil || !strings.HasSuffix(name, ".gz") {
		return text, err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(unpacked)
}
