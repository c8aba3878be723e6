package process

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/bench/measure"
)

// The first thread may be kept to a server's cores: it is not the one to ask.
func TestCoresOfThreads(t *testing.T) {
	cores, err := Cores()
	require.NoError(t, err)
	if len(cores) < 2 {
		t.Skip("takes two cores")
	}
	runtime.LockOSThread() // nobody else runs on it: one of the two below is not the first
	defer runtime.UnlockOSThread()
	ask := func() ([]int, error) {
		if unix.Gettid() == os.Getpid() {
			return cores, nil
		}
		if err := pinThread(os.Getpid(), cores[0]); err != nil {
			return nil, err
		}
		defer func() { _ = pinThread(os.Getpid(), cores...) }() // it was allowed before
		return Cores()
	}
	got, err := ask()
	require.NoError(t, err)
	assert.Equal(t, cores, got)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		got, err = ask()
	}()
	<-done
	require.NoError(t, err)
	assert.Equal(t, cores, got)
}

// The CPU time of a process grows while it computes, and is not known once it has been waited for.
func TestCPU(t *testing.T) {
	before := OwnCPU()
	ready := func([]byte) (string, bool) { return "", true }
	p, err := Start(t.Context(), exec.Command("sh", "-c", "echo ready; while :; do :; done"), Options{Timeout: 20 * time.Second, Ready: ready})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		used, err := p.CPU()
		return assert.NoError(t, err) && used >= 20*time.Millisecond
	}, 20*time.Second, time.Millisecond)
	p.Stop()
	_, err = p.CPU()
	require.ErrorIs(t, err, measure.ErrLost)
	assert.Greater(t, OwnCPU(), before)
}
