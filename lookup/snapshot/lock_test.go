package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each server that begins while another has the path says so. The file of a lock that nobody has any more says nothing.
func TestTwoServersOnOnePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index")
	const line = "another server writes this snapshot"
	require.NoError(t, os.WriteFile(path+lockSuffix, nil, 0o600))
	first, log := newSaver(t, filled(t, 1), path)
	assert.Empty(t, log.String())
	second, log := newSaver(t, filled(t, 1), path)
	assert.Contains(t, log.String(), line)
	assert.Contains(t, log.String(), path)
	other, log := newSaver(t, filled(t, 1), path+"2")
	assert.Empty(t, log.String())

	end := func(s *Saver) {
		s.Start()
		s.Stop()
		s.SaveLast(t.Context())
	}
	end(first)
	end(other)
	third, log := newSaver(t, filled(t, 1), path)
	assert.Contains(t, log.String(), line, "the second is there")
	end(second)
	end(third)
	_, log = newSaver(t, filled(t, 1), path)
	assert.NotContains(t, log.String(), line)
}

// What is in the place of the lock does not keep a server from starting.
func TestLockThatCannotBeHad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index")
	require.NoError(t, os.Mkdir(path+lockSuffix, 0o700))
	_, log := newSaver(t, filled(t, 1), path)
	assert.Contains(t, log.String(), "cannot tell whether another server writes this snapshot")
	require.NoError(t, os.Remove(path+lockSuffix))
	require.NoError(t, os.Symlink("/no/such", path+lockSuffix))
	_, log = newSaver(t, filled(t, 1), path)
	assert.Contains(t, log.String(), "cannot tell whether another server writes this snapshot")
}
