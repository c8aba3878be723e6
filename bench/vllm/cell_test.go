//go:build linux

package vllm

import (
	"testing"

	"github.com/hitline/hitline/bench/measure"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFinish has the master end during the rounds of a row whose hits are 0. Both answer 0
// then as before.
func TestFinish(t *testing.T) {
	for _, c := range []struct {
		since, now hitlineStat
		fails      bool
	}{
		{hitlineStat{Errors: 2, Timeouts: 1, Rejected: 3}, hitlineStat{Lookups: 9, Errors: 2, Timeouts: 1, Rejected: 3}, false},
		{hitlineStat{}, hitlineStat{Errors: 1}, true},
		{hitlineStat{}, hitlineStat{Timeouts: 1}, true},
		{hitlineStat{Rejected: 1}, hitlineStat{Rejected: 2}, true},
	} {
		err := new(Row).finish(measured, hitline, c.since, c.now)
		if c.fails {
			require.ErrorIs(t, err, measure.ErrLost, c)
		} else {
			require.NoError(t, err, c)
		}
	}
}

// measured are the rounds of a row.
var measured = map[string]measure.Rounds{
	vllm:     {{11, 30}, {24, 24}, {30, 90}},
	hitline:  {{10, 10}, {20, 20}, {30, 30}},
	prepared: {{9, 9}, {16, 16}, {30, 30}},
}

// Chains are stored as their presence says, and bytes ask for what tells the hit.
func TestPrompts(t *testing.T) {
	prompts := func(p Presence) ([]chain, []prompt, int) {
		m := &measurement{cell: cell{Shape{8, 640}, p, []Ask{First}}, o: Options{StoreKeys: 30_000}}
		return m.prompts()
	}
	chains, asked, present := prompts(Half)
	assert.Equal(t, []chain{{number: 0, hashes: 640, stored: 320}}, chains)
	assert.Equal(t, []prompt{{Hashes: 640, Told: 321}}, asked)
	assert.Equal(t, 320, present)

	chains, asked, present = prompts(FirstMissing)
	assert.Equal(t, []chain{{number: 0, hashes: 640, stored: 640, skipped: 1}}, chains)
	assert.Equal(t, []prompt{{Hashes: 640, Told: 1}}, asked)
	assert.Zero(t, present)

	_, asked, present = prompts(All)
	assert.Equal(t, []prompt{{Hashes: 640, Told: 640}}, asked)
	assert.Equal(t, 640, present)

	chains, _, _ = prompts(RandomCut)
	require.Len(t, chains, minCuts)
	for i, c := range chains {
		assert.GreaterOrEqual(t, c.stored, i*128)
		assert.Less(t, c.stored, (i+1)*128)
	}
}

// A turn begins where the one before ended, and no prompt is asked for twice.
func TestTurns(t *testing.T) {
	m := &measurement{cell: cell{Shape{8, 5000}, All, []Ask{Turns}}, o: Options{Rounds: 2, StoreKeys: 30_000}}
	chains, prompts, present := m.prompts()
	assert.Equal(t, []chain{{number: 0, hashes: 5900, stored: 5900}, {number: 1, hashes: 5900, stored: 5900}}, chains)
	require.Len(t, prompts, 2*numTurns)
	assert.Equal(t, []prompt{{0, 5150, 5000, 5150}, {0, 5300, 5150, 5300}}, prompts[:2])
	assert.Equal(t, prompt{1, 5900, 5750, 5900}, prompts[2*numTurns-1])
	assert.Equal(t, 2*numTurns*150, present)
}

func TestSplit(t *testing.T) {
	assert.Equal(t, measure.Rounds{{1, 2}, {3, 5}}, split([]float64{2, 1, 5, 3}, 2))
	assert.Equal(t, measure.Rounds{{1}, {1}}, split([]float64{1}, 2), "a round has one")
}
