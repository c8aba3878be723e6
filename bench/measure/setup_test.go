package measure

import (
	"encoding/json"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSetup(t *testing.T) {
	s := NewSetup(7)
	assert.Equal(t, os.Args, s.Command)
	assert.NotEmpty(t, s.Version)
	assert.Equal(t, runtime.NumCPU(), s.Machine.Cores)
	assert.Equal(t, runtime.Version(), s.Machine.Go)
	assert.NotEmpty(t, s.Machine.Kernel)
	assert.Contains(t, s.String(), ", --seed 7")
	assert.NotContains(t, NewSetup(0).String(), "seed")

	text, err := json.Marshal(s)
	require.NoError(t, err)
	var back Setup
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, s, back)
}

// A seed survives a JSON reader that keeps numbers as floats.
func TestRandomSeed(t *testing.T) {
	a, b := RandomSeed(), RandomSeed()
	assert.NotEqual(t, a, b)
	assert.Equal(t, a, uint64(float64(a)))
}
