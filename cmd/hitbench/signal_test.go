//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/internal/cli"
)

// With two connections, standard input is read to its end before any is made, so
// no server is needed.
func TestSignals(t *testing.T) {
	for _, signal := range cli.EndSignals() { // those of the command are the same: what this process ignores, it ignores
		cmd := exec.Command(os.Args[0], "replay", "--trace", "-", "--connections", "2")
		cmd.Env = append(os.Environ(), asCommand+"=1")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		// More than a pipe holds: when it is written, the command is reading and so
		// has been listening to signals for a while.
		_, err = stdin.Write([]byte(strings.Repeat(small, 20_000)))
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(signal))
		_ = cmd.Wait() // the exit code is looked at below
		assert.Equal(t, exitBad, cmd.ProcessState.ExitCode(), "%v", signal)
		assert.Equal(t, "hitbench: interrupted\n", stderr.String(), "%v", signal)
	}
}

// A program that nohup(1) starts goes on when its terminal closes.
func TestIgnoredHangup(t *testing.T) {
	cmd := exec.Command("nohup", os.Args[0], "replay", "--trace", "-", "--connections", "2")
	cmd.Env = append(os.Environ(), asCommand+"=1")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = stdin.Write([]byte(strings.Repeat(small, 20_000)))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	// As much again: it still reads.
	_, err = stdin.Write([]byte(strings.Repeat(small, 20_000)))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	assert.Equal(t, exitBad, cmd.ProcessState.ExitCode())
}
