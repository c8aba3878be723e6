//go:build linux

package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/internal/cli"
)

// startSilent starts a program with arguments for this command, which asks a server that never
// answers, and returns when it does: it has been listening to signals for a while.
func startSilent(t *testing.T, program ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	args := append(program, "run", "--timeout", "1h", "--connect", listener.Addr().String())
	cmd, stderr = exec.Command(args[0], args[1:]...), &bytes.Buffer{}
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Stderr = stderr
	require.NoError(t, cmd.Start())
	conn, err := listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return cmd, stderr
}

func TestSignals(t *testing.T) {
	for _, signal := range cli.EndSignals() { // those of the command are the same: what this process ignores, it ignores
		cmd, stderr := startSilent(t, os.Args[0])
		require.NoError(t, cmd.Process.Signal(signal))
		_ = cmd.Wait() // the exit code is looked at below
		assert.Equal(t, exitBad, cmd.ProcessState.ExitCode(), "%v", signal)
		assert.Equal(t, "hitbench: interrupted\n", stderr.String(), "%v", signal)
	}
}
