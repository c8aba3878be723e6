//go:build linux

package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCompareVLLMUsage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for text, more := range map[string][]string{
		"--miss-at does not go with --vllm\n":            {"--miss-at", "tail"},
		"bad options: tensor-parallel size \"3\"; there": {"--tp", "3"},
		"bad options: 0 keys of the store; give":         {"--store-keys", "0"},
		"--before: bad options: exec: \"/no/hitline\"":   {"--before", "/no/hitline"},
		"--python: missing: python3 is neither":          nil,
		"--python: bad options: exec: \"/no/python\"":    {"--python", "/no/python"},
		"bad options: /bin/false cannot be used":         {"--python", "/bin/false"},
	} {
		var stdout, stderr bytes.Buffer
		a := app{stdout: &stdout, stderr: &stderr, dial: dial}
		args := append([]string{"compare", "--vllm", "0.33.0", "--hitline", "/bin/true"}, more...)
		assert.Equal(t, exitUsage, a.run(t.Context(), args), more)
		assert.Contains(t, stderr.String(), text)
		assert.Empty(t, stdout.String())
	}
	var stdout, stderr bytes.Buffer
	a := app{stdout: &stdout, stderr: &stderr, dial: dial}
	assert.Equal(t, exitUsage, a.run(t.Context(), []string{"compare", "--hitline", "/bin/true", "--tp", "8"}))
	assert.Contains(t, stderr.String(), "--tp needs --vllm\n")
}
