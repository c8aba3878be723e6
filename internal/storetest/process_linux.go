package storetest

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/logtest"
)

// Process is a child process. It is killed when its test or the test process ends.
type Process struct {
	Cmd  *exec.Cmd
	Log  logtest.Buffer // its standard error
	done chan struct{}  // closed when the process has exited
}

// Start starts p.Cmd.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	p.Cmd.Stderr, p.done = &p.Log, make(chan struct{})
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, p.Cmd.Start())
	go func() {
		_ = p.Cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(p.Kill)
}

// Kill kills the process with SIGKILL and waits for its exit.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.done
}

// exited reports whether the process has exited.
func (p *Process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
