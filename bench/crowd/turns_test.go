//go:build linux

package crowd

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/workload"
)

const excerpt = workload.Trace("../testdata/conversation_excerpt.jsonl")

// madeTurns returns the first turns of ten engines, after a store was filled.
func madeTurns(t *testing.T, seed uint64) (made []turn) {
	s, err := readSessions(t.Context(), excerpt)
	require.NoError(t, err)
	all := newTurns(s, 10, 6000, seed)
	all.fill(20_000)
	for range 500 {
		made = append(made, all.next())
	}
	return made
}

// The same seed makes the same turns, another one others.
func TestTurns(t *testing.T) {
	made := madeTurns(t, 1)
	assert.True(t, reflect.DeepEqual(made, madeTurns(t, 1))) // a difference would be megabytes of text
	assert.False(t, reflect.DeepEqual(made, madeTurns(t, 2)))
	var held, moved int
	served := map[int]int{} // by session: the engine of its turn before
	for i, one := range made {
		assert.Equal(t, one.tokens/blockTokens, one.blocks())
		assert.LessOrEqual(t, one.start, one.hittable())
		assert.True(t, i == 0 || one.at >= made[i-1].at, "in order")
		if one.start > idBlocks { // the first id is in all prompts
			held++
		}
		if engine, ok := served[one.owner]; ok && engine != one.engine {
			moved++
		}
		served[one.owner] = one.engine
	}
	assert.Greater(t, held, len(made)/10, "engines have what they served before")
	assert.Less(t, held, len(made)*9/10)
	assert.Greater(t, moved, len(made)/20)
	assert.Less(t, moved, len(made)/2)
	assert.InDelta(t, len(made)/10*5, made[len(made)-1].at.Seconds()-made[0].at.Seconds(), 60, "0.2 turns a second each")
}

// A session is prompts of which each continues one before. After the last session they come with other ids, but for
// the first of each prompt.
func TestSessions(t *testing.T) {
	s, err := readSessions(t.Context(), excerpt)
	require.NoError(t, err)
	first := make([]session, len(s.ofTrace))
	for i := range first {
		first[i] = s.begin()
		had := map[uint64]bool{}
		for n, p := range first[i].prompts {
			assert.True(t, n == 0 || had[p.ids[1]], "it shares more than a system prompt")
			for _, id := range p.ids {
				had[id] = true
			}
		}
	}
	for i := range first {
		again := s.begin()
		require.Len(t, again.prompts, len(first[i].prompts))
		for n, p := range again.prompts {
			before := first[i].prompts[n]
			assert.Equal(t, before.tokens, p.tokens)
			assert.Equal(t, before.ids[0], p.ids[0])
			assert.NotEqual(t, before.ids[1:], p.ids[1:])
		}
	}
}

// A cache drops what was used least recently, and the end of a prompt before its beginning.
func TestLRU(t *testing.T) {
	parts := func(ids ...uint64) (all []part) {
		for _, id := range ids {
			all = append(all, part{id: id, hashes: make([]byte, 2*workload.HashLen)})
		}
		return all
	}
	c := newLRU(6)
	c.touch(parts(1, 2))
	c.touch(parts(1, 3))
	assert.Equal(t, 4, c.leading(parts(1, 2)))
	c.touch(parts(4))
	assert.Equal(t, 2, c.leading(parts(1, 2)), "2 was used least recently")
	assert.Equal(t, 4, c.leading(parts(1, 3)))
	assert.Equal(t, 6, c.size)
	c.touch(parts(5, 6, 7, 8))
	assert.Equal(t, 6, c.leading(parts(5, 6, 7, 8)), "the end is dropped first")
}
