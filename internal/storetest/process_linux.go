package storetest

import (
	"bytes"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Process is a child process. It is killed when its test or the test process ends.
type Process struct {
	Cmd  *exec.Cmd
	log  syncBuffer
	done chan struct{} // closed when the process has exited
}

// syncBuffer is a buffer that may be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start starts p.Cmd, whose standard error goes to p.log.
func (p *Process) start(t testing.TB) {
	t.Helper()
	p.Cmd.Stderr, p.done = &p.log, make(chan struct{})
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
