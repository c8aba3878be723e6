package listen

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A socket that is replaced is there at every moment, and its old listener goes on.
func TestReplaceLeavesNoGap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	stale.SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())
	done, gaps := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-done:
				gaps <- n
				return
			default:
			}
			if _, err := os.Lstat(path); err != nil {
				n++
			}
		}
	}()
	for range 200 {
		s, err := bindUnix(path, 0o600)
		require.NoError(t, err)
		s.removeFile = nil
		require.NoError(t, s.Close())
	}
	close(done)
	require.Zero(t, <-gaps)
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, files, 1, "no other file is left")
}
