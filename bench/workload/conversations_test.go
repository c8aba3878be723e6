package workload

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure/measuretest"
)

func conversationOptions() ConversationOptions {
	return ConversationOptions{Hashes: []int{40, 101}, Prefixes: 5, Zipf: 1.5, Turns: 7, Active: 3, Seed: 1, Pipeline: 4}
}

// What a set of stored hashes answers is what each turn says, on all engines at once.
func TestConversations(t *testing.T) {
	o := conversationOptions()
	c := NewConversations(o)
	stored := map[string]bool{}
	for i := range c.NumPrefixes() {
		for _, h := range split(c.Prefix(i)) {
			stored[h] = true
		}
	}
	ends := 0
	lengths := map[[3]int]bool{}
	c.EachTurn(func(_, prompt, stored, end int) { lengths[[3]int{prompt, stored, end}] = true })
	engines := []*Engine{c.Engine(0), c.Engine(1), c.Engine(2)}
	used := map[string]int{}
	for i := range 3000 {
		turn := engines[i%3].Next()
		asked := split(slices.Concat(turn.Prefix, turn.Asked()))
		require.Len(t, asked, turn.Prompt)
		known := 0
		for known < len(asked) && stored[asked[known]] {
			known++
		}
		require.Equal(t, known, turn.Stored, "turn %d", i)
		require.Less(t, known, turn.Prompt, "a question is new")
		fresh := split(turn.New())
		require.True(t, lengths[[3]int{turn.Prompt, turn.Stored, turn.Stored + len(fresh)}], "%d of %d", turn.Stored, turn.Prompt)
		require.GreaterOrEqual(t, turn.Stored+len(fresh), turn.Prompt)
		require.Equal(t, asked[known:], fresh[:turn.Prompt-known])
		for _, h := range fresh {
			require.False(t, stored[h])
			stored[h] = true
		}
		used[string(turn.Prefix)]++
		n := turn.Stored + len(fresh)
		require.Equal(t, turn.Last, n == 40 || n == 101)
		if turn.Last {
			ends++
		}
	}
	assert.Len(t, used, o.Prefixes)
	assert.Greater(t, used[string(c.Prefix(0))], used[string(c.Prefix(4))]*7, "Zipf's law")
	assert.InDelta(t, 3000/o.Turns, ends, 3*3, "all turns of a conversation come")
}

// The hashes of a turn stay as they are while a pipeline of turns is under way.
func TestConversationsBorrow(t *testing.T) {
	o := conversationOptions()
	e := NewConversations(o).Engine(0)
	type taken struct {
		turn Turn
		own  []byte
	}
	var under []taken
	memory := map[*byte]bool{}
	for range 2000 {
		turn := e.Next()
		memory[&turn.Own[0]] = true
		under = append(under, taken{turn, bytes.Clone(turn.Own)})
		if len(under) > o.Pipeline {
			under = under[1:]
		}
		for _, u := range under {
			require.Equal(t, u.own, u.turn.Own)
		}
	}
	assert.Less(t, len(memory), 60, "memory is used again")
}

func TestConversationsSeed(t *testing.T) {
	take := func(seed Seed, engine int) (all []byte) {
		o := conversationOptions()
		o.Seed = seed
		e := NewConversations(o).Engine(engine)
		for range 100 {
			turn := e.Next()
			all = append(append(all, turn.Prefix...), turn.Own...)
		}
		return all
	}
	assert.Equal(t, take(1, 0), take(1, 0))
	assert.NotEqual(t, take(1, 0), take(2, 0))
	assert.NotEqual(t, take(1, 0), take(1, 1))
}

func TestMissAt(t *testing.T) {
	for _, at := range []MissAt{MissFirst, MissMiddle, MissTail} {
		require.NoError(t, at.Check())
	}
	measuretest.RefusedOptions(t, MissRandom, MissAt.Check, map[string]func(*MissAt){
		`a miss at "end"; there are first, middle, tail, random`: func(m *MissAt) { *m = "end" },
	})
}

func TestConversationOptions(t *testing.T) {
	measuretest.RefusedOptions(t, conversationOptions(), ConversationOptions.Check, map[string]func(*ConversationOptions){
		"0 prefixes; give 1":                            func(o *ConversationOptions) { o.Prefixes = 0 },
		"0 turns; give 1":                               func(o *ConversationOptions) { o.Turns = 0 },
		"0 conversations under way":                     func(o *ConversationOptions) { o.Active = 0 },
		"a Zipf exponent of 1;":                         func(o *ConversationOptions) { o.Zipf = 1 },
		"conversations of 15 hashes; give 16 to":        func(o *ConversationOptions) { o.Hashes = []int{40, 15} },
		"conversations of 2097153 hashes; give 16 to 2": func(o *ConversationOptions) { o.Hashes = []int{MaxHashes + 1} },
	})
	o := conversationOptions()
	o.Hashes = []int{16} // as short as may be: every turn adds a hash at least
	require.NoError(t, o.Check())
	e := NewConversations(o).Engine(0)
	for range 100 {
		turn := e.Next()
		assert.Greater(t, turn.Prompt, turn.Stored)
	}
}
