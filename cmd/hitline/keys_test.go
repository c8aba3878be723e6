package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A wrong --before is reported before the command connects.
func TestWrongBefore(t *testing.T) {
	got := hitline(t, "00\n", "store", "--hashes-file", "-", "--before", "zz", "--connect", "tcp://127.0.0.1:1")
	assert.Equal(t, exitUsage, got.code)
	assert.Contains(t, got.stderr, `hitline: --before "zz" is no hash in hexadecimal digits`)
}
