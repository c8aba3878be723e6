package workload

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestModel(t *testing.T) {
	type step struct {
		ids   []uint64
		known int // before ids are added
	}
	tests := map[string][]step{
		"empty request":        {{nil, 0}, {nil, 0}},
		"again":                {{[]uint64{1, 2, 3}, 0}, {[]uint64{1, 2, 3}, 3}},
		"longer":               {{[]uint64{1, 2}, 0}, {[]uint64{1, 2, 3}, 2}, {[]uint64{1, 2, 3}, 3}},
		"shorter":              {{[]uint64{1, 2, 3}, 0}, {[]uint64{1, 2}, 2}},
		"branch":               {{[]uint64{1, 2, 3}, 0}, {[]uint64{1, 9, 3}, 1}, {[]uint64{1, 2, 3}, 3}},
		"suffix is no prefix":  {{[]uint64{1, 2, 3}, 0}, {[]uint64{2, 3}, 0}},
		"same id below itself": {{[]uint64{5}, 0}, {[]uint64{5, 5}, 1}, {[]uint64{5, 5, 5}, 2}},
		"same id elsewhere":    {{[]uint64{1, 7, 8}, 0}, {[]uint64{2, 7, 8}, 0}, {[]uint64{2, 7, 9}, 2}},
		"ids past 32 bits":     {{[]uint64{1 << 32}, 0}, {[]uint64{0}, 0}, {[]uint64{1<<64 - 1}, 0}, {[]uint64{1<<32 - 1}, 0}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var m Model
			for i, s := range steps {
				assert.Equal(t, s.known, m.Known(s.ids), "step %d", i)
				m.Add(s.ids)
				assert.Equal(t, len(s.ids), m.Known(s.ids), "after step %d", i)
			}
		})
	}
}

// A set of whole prefixes, as text, is the same thing written naively.
func TestModelAgainstPrefixes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var m Model
	stored := map[string]bool{}
	for range 2000 {
		ids := make([]uint64, random.IntN(8))
		for i := range ids {
			ids[i] = random.Uint64N(4)
		}
		want := 0
		for want < len(ids) && stored[fmt.Sprint(ids[:want+1])] {
			want++
		}
		require.Equal(t, want, m.Known(ids), "%v", ids)
		if random.IntN(4) == 0 {
			m.Add(ids)
			for i := range ids {
				stored[fmt.Sprint(ids[:i+1])] = true
			}
		}
	}
	require.Len(t, m.nodes, len(stored))
}
