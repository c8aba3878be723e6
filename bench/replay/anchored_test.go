package replay

import (
	"context"
	"testing"
	"time"

	"github.com/hitline/hitline/bench/workload"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// anchoredFake is asked both ways.
type anchoredFake struct {
	*fake
	full int // calls by all hashes
	lie  int // the number of the call by all hashes that is answered differently
}

func (f *anchoredFake) LookupInFull(ctx context.Context, numTokens uint32, hashes []byte, length int) (uint32, error) {
	f.full++
	hit, err := f.Lookup(ctx, numTokens, hashes, length)
	if f.full == f.lie {
		hit += workload.BlockTokens
	}
	return hit, err
}

func (f *anchoredFake) Sent() (anchored, full int64) { return 1000, 12_345 }

func TestReplayBothWays(t *testing.T) {
	const trace = "{\"hash_ids\":[1,2]}\n{\"hash_ids\":[]}\n{\"hash_ids\":[1,2,3]}\n{\"hash_ids\":[4]}\n"
	for _, lie := range []int{0, 1, 3} {
		var problems []error
		f := &anchoredFake{fake: newFake(t), lie: lie}
		got, err := Run(t.Context(), Options{
			Trace: traceOf(trace), BlockSize: 512, Timeout: time.Minute,
			OnProblem: func(err error) { problems = append(problems, err) },
		}, f)
		require.NoError(t, err)
		assert.Equal(t, 3, f.full, "each that has hashes")
		assert.Equal(t, 7, f.lookups)
		require.NotNil(t, got.Anchored)
		assert.Equal(t, AnchoredReport{SentBytes: 1000, FullBytes: 12_345, Fewer: 12.35}, *got.Anchored)
		if lie == 0 {
			assert.Zero(t, got.Wrong)
			continue
		}
		assert.EqualValues(t, 1, got.Wrong)
		require.Len(t, problems, 1)
		assert.Contains(t, problems[0].Error(), "by anchors")
	}
}
