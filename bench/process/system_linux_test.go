package process

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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
