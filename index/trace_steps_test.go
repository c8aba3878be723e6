package index

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// chainInPieces stores a chain from its end, piece by piece, and confirms it. Every piece
// but the first of the chain is in two runs: its first key, whose link is said last, and
// the others.
func chainInPieces(t testing.TB, x *Index, pieces, n int) (keys []byte) {
	keys = chain(1, pieces*n, 32)
	for from := (pieces - 1) * n; from >= 0; from -= n {
		var before []byte
		if from > 0 {
			before = cut(keys, from-1, from)
		}
		storeAt(t, x, 0, uint32(from), before, cut(keys, from, from+n))
	}
	require.True(t, confirm(x, 0, nil, keys, 32))
	return keys
}

// TestTraceInSteps traces a chain in pieces, with any amount of work a step.
func TestTraceInSteps(t *testing.T) {
	const pieces, n, runs = 100, 20, 2*100 - 1
	x := mustNew(t, onePlace(0))
	keys := chainInPieces(t, x, pieces, n)
	last, number := cut(keys, pieces*n-1, pieces*n), uint32(pieces*n-1)
	onePiece := workPerCall + workPerKey + workPerLink + n/8 + workPerRun
	for _, work := range []int{-1, 0, 1, 100, 1000, 1 << 30} {
		var trail Trail
		down, done := x.Trace(&trail, last, number, work)
		steps := 1
		for before := trail.Work(); !done; before = trail.Work() {
			require.EqualValues(t, trail.Runs[len(trail.Runs)-1].From, down)
			down, done = x.ResumeTrace(&trail, work)
			steps++
			require.LessOrEqual(t, trail.Work()-before, max(work, 0)+onePiece)
		}
		require.Zero(t, down)
		requireRuns(t, trail.Runs, pieces*n)
		switch {
		case work <= 1:
			require.Equal(t, runs, steps)
		case work == 1<<30:
			require.Equal(t, 1, steps)
		default:
			require.InDelta(t, float64(runs)/(float64(work)/float64(workPerLink+workPerRun)), steps, float64(runs)/4)
		}
	}
}

// TestTraceMeetsChanges changes the index between two steps.
func TestTraceMeetsChanges(t *testing.T) {
	const pieces, n = 10, 5
	key := func(keys []byte, i int) []byte { return cut(keys, i, i+1) }
	for name, c := range map[string]struct {
		change func(t *testing.T, x *Index, keys []byte)
		down   uint32
	}{
		"none":    {func(*testing.T, *Index, []byte) {}, 0},
		"a reset": {func(_ *testing.T, x *Index, _ []byte) { x.Reset() }, 46},
		"a reset, and all is stored again": {func(t *testing.T, x *Index, _ []byte) {
			x.Reset()
			chainInPieces(t, x, pieces, n)
		}, 46},
		"the block in front goes": {func(t *testing.T, x *Index, keys []byte) {
			evict(t, x, 0, key(keys, 45), 32)
		}, 46},
		"it comes again": {func(t *testing.T, x *Index, keys []byte) {
			evict(t, x, 0, key(keys, 45), 32)
			storeAt(t, x, 0, 45, key(keys, 44), key(keys, 45))
		}, 46}, // and is not confirmed
		"it comes again and is confirmed": {func(t *testing.T, x *Index, keys []byte) {
			evict(t, x, 0, key(keys, 45), 32)
			storeAt(t, x, 0, 45, key(keys, 44), key(keys, 45))
			require.True(t, confirm(x, 45, key(keys, 44), key(keys, 45), 32))
		}, 0},
		"a block behind goes": {func(t *testing.T, x *Index, keys []byte) {
			evict(t, x, 0, key(keys, 47), 32)
		}, 0},
		"a block further in front goes": {func(t *testing.T, x *Index, keys []byte) {
			evict(t, x, 0, key(keys, 22), 32)
		}, 23},
		"others are stored": {func(t *testing.T, x *Index, _ []byte) { store(t, x, chain(9, 500, 32), 32) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			x := mustNew(t, onePlace(0))
			keys := chainInPieces(t, x, pieces, n)
			var trail Trail
			down, done := x.Trace(&trail, key(keys, pieces*n-1), pieces*n-1, 0)
			require.False(t, done)
			require.EqualValues(t, 46, down)
			c.change(t, x, keys)
			for !done {
				down, done = x.ResumeTrace(&trail, 0)
			}
			require.Equal(t, c.down, down)
			if down == 0 {
				requireRuns(t, trail.Runs, pieces*n)
			}
		})
	}
}
