package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDemo runs scripts/demo, whose exit code says what went wrong.
func TestDemo(t *testing.T) {
	p := build(t)
	t.Run("right", func(t *testing.T) {
		code, out := demo(t, p.bin)
		require.Zero(t, code, out)
		assert.Contains(t, out, "\nrequests     799,")
		assert.Contains(t, out, "\nwrong        0\n")
		assert.Contains(t, out, "\nhit 1536 tokens\n")
		assert.Contains(t, out, "\nEvery answer was right, and the server has stopped.\n")
	})
	const replay = `[ "$1" != replay ] || `
	for name, tt := range map[string]struct {
		hitline, hitbench string // what happens first in place of the program
		code              int
		says              string
	}{
		"wrong answer":        {hitbench: replay + "exit 1", code: 1, says: "an answer was wrong or refused"},
		"lost server":         {hitbench: replay + "exit 3", code: 3, says: "scripts/demo: the server was lost. Its log:\n"},
		"no start":            {hitline: `[ "$1" != serve ] || { echo "no port" >&2; exit 2; }`, code: 3, says: "scripts/demo: the server did not start. Its log:\nno port\n"},
		"bad stop":            {hitline: `[ "$1" != serve ] || { trap 'kill $!; exit 1' TERM; "$0.real" "$@" & wait $!; }`, code: 3, says: "scripts/demo: the server ended with 1 after SIGTERM. Its log:\n"},
		"lookup not answered": {hitline: `[ "$1" != lookup ] || { echo "no connection" >&2; exit 3; }`, code: 3, says: "no connection\n"},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			for program, first := range map[string]string{"hitline": tt.hitline, "hitbench": tt.hitbench} {
				path := filepath.Join(bin, program)
				require.NoError(t, os.Symlink(filepath.Join(p.bin, program), path+".real"))
				require.NoError(t, os.WriteFile(path, []byte("#!/bin/bash\n"+first+"\nexec \"$0.real\" \"$@\"\n"), 0o700))
			}
			code, out := demo(t, bin)
			assert.Equal(t, tt.code, code, out)
			assert.Contains(t, out, tt.says)
		})
	}
	t.Run("no programs", func(t *testing.T) {
		code, out := demo(t, t.TempDir())
		assert.Equal(t, 2, code)
		assert.Contains(t, out, "run make build first")
	})
	t.Run("wrong usage", func(t *testing.T) {
		for _, args := range [][]string{{"--fast"}, {p.bin, p.bin}} {
			code, out := demo(t, args...)
			assert.Equal(t, 2, code, args)
			assert.Contains(t, out, "usage: scripts/demo [FOLDER]")
		}
	})
}

// demo runs scripts/demo and returns its exit code and what it printed.
func demo(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), root+"/scripts/demo", args...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}
