package events

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// engineCache is what an engine caches: the number of copies by group and hash.
type engineCache struct {
	*engineProcess
	copies map[string]int
	next   uint64 // sequence number
}

// add adds steps of the engine.
func (c *engineCache) add(steps []engineStep) {
	for _, s := range steps {
		for _, b := range s.Changes {
			c.copies[fmt.Sprint(b.Group, b.Hash)] = b.Copies
		}
		c.next = s.Next
	}
	maps.DeleteFunc(c.copies, func(_ string, copies int) bool { return copies == 0 })
}

// requireHeld waits until f is where the engine is. Then nothing is held that is not cached. It returns how many
// blocks are cached and not held.
func (c *engineCache) requireHeld(t *testing.T, f *Follower, set *testSet) (missing int) {
	t.Helper()
	awaitStatus(t, f, func(s Status) bool { return !s.Stale && s.NextSeq == c.next })
	held := 0
	for b := range set.Each {
		for _, hash := range b.Hashes.All() {
			held++
			require.Positive(t, c.copies[fmt.Sprint(b.Group, hex.EncodeToString(hash))], "group %d, hash %x: %+v", b.Group, hash, f.Status())
		}
	}
	return len(c.copies) - held
}

// TestEngine follows the event publisher and the cache manager of releases of vLLM that publish arrays and maps, and
// replay with and without the topic. They compute random requests in a cache that is too small.
func TestEngine(t *testing.T) {
	for name, test := range map[string]struct {
		engine engineConfig
		binds  bool // the follower
	}{
		"arrays":       {engineConfig{Release: "0.23.0", Window: 16, Least: 1, Integers: true}, false},
		"digests":      {engineConfig{Release: "0.28.0", Window: 16, Least: 1}, false},
		"integers":     {engineConfig{Release: "0.33.0", Window: 16, Least: 1, Integers: true}, false},
		"connects":     {engineConfig{Release: "0.33.0", Window: 16, Least: 1}, true},
		"full reports": {engineConfig{Release: "0.33.0", Window: 16, Least: 5, Full: 0.3, Integers: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Requests that ask for full reports name blocks that are cached already, and in front of a window
			// blocks that are not. Copies of first blocks are not counted then, and a few blocks are not held.
			exact := test.engine.Full == 0
			dir := t.TempDir()
			cfg := Config{Endpoint: "ipc://" + dir + "/pub", Replay: "ipc://" + dir + "/replay", ExactCopies: exact, Bind: test.binds}
			if test.binds {
				cfg.Endpoint = "tcp://" + storetest.FreeAddr(t)
			}
			test.engine.Endpoint, test.engine.Replay, test.engine.Buffer, test.engine.Blocks = cfg.Endpoint, cfg.Replay, 10_000, 120
			c := &engineCache{startEngine(t, test.engine), map[string]int{}, 0}
			f, set := follow(t, cfg)
			cached, missing := 0, 0
			for _, steps := range slices.Repeat([]int{100, 200, 0}, 5) { // 0: a reset
				if steps == 0 {
					c.add(c.reset())
				} else {
					c.add(c.run(steps, false))
				}
				missing += c.requireHeld(t, f, set)
				cached += len(c.copies)
				require.True(t, f.Status().Complete)
			}
			require.LessOrEqual(t, missing*50, cached, "over 2 of 100 blocks are not held")
			require.True(t, missing == 0 || !exact)

			c.add(c.run(5, true)) // their numbers are used up
			c.add(c.run(20, false))
			c.requireHeld(t, f, set)
			require.False(t, f.Status().Complete)
			require.Positive(t, f.Status().Lost)
			c.add(c.reset())
			c.requireHeld(t, f, set)
			require.True(t, f.Status().Complete)

			c.Kill()
			test.engine.Seed++
			c = &engineCache{startEngine(t, test.engine), map[string]int{}, 0}
			c.add(c.run(100, false))
			missing = c.requireHeld(t, f, set)
			require.True(t, missing == 0 || !exact)
			require.Positive(t, f.Status().Restarts)
			t.Logf("%d blocks were cached, %d of them not held: %+v", cached, missing, f.Status())
		})
	}
}
