package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Settings of a snapshot that have no effect, or hardly one, are warned of.
func TestSnapshotWarnings(t *testing.T) {
	for text, want := range map[string]string{
		"{}":                                  "",
		"{path: x}":                           "",
		"{path: x, interval: 0}":              "",
		"{path: x, interval: 1h}":             "interval: 1h0m0s is longer than max_age, 15m0s: after a crash the file may be too old to be loaded",
		"{path: x, interval: 1h, max_age: 0}": "",
		"{interval: 1m}":                      "interval: has no effect without path, the file to write and load",
		"{max_age: 1m}":                       "max_age: has no effect without path, the file to write and load",
		"{path: \"\", interval: 1m}":          "", // as --check prints it
	} {
		warnings := load(t, "backend: {memory: {snapshot: "+text+"}}\n").snapshotWarnings()
		if want == "" {
			assert.Empty(t, warnings, text)
		} else if assert.Len(t, warnings, 1, text) {
			assert.Contains(t, warnings[0], ": backend.memory.snapshot."+want, text)
		}
	}
}
