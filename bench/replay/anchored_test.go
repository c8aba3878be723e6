package replay

import (
	"testing"
	"time"

	"github.com/hitline/hitline/bench/workload"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReplayBothWays(t *testing.T) {
	const trace = "{\"hash_ids\":[1,2]}\n{\"hash_ids\":[]}\n{\"hash_ids\":[1,2,3]}\n{\"hash_ids\":[4]}\n"
	for _, lie := range []int{0, 1, 3} {
		var problems []error
		f, written := newFake(t), int64(0)
		f.answer = func(_ int, right uint32) (uint32, error) {
			written += 10
			return right, nil
		}
		full := &fake{t: t, index: f.index, answer: func(call int, right uint32) (uint32, error) {
			written += 123
			if call == lie {
				right += workload.BlockTokens
			}
			return right, nil
		}}
		got, err := Run(t.Context(), Options{
			Trace: traceOf(trace), BlockSize: 512, Timeout: time.Minute, Full: full, Written: func() int64 { return written },
			OnProblem: func(err error) { problems = append(problems, err) },
		}, f)
		require.NoError(t, err)
		assert.Equal(t, 3, full.lookups, "each that has hashes")
		assert.Equal(t, 4, f.lookups)
		require.NotNil(t, got.Anchored)
		assert.Equal(t, AnchoredReport{SentBytes: 40, FullBytes: 369, Fewer: 9.23}, *got.Anchored)
		if lie == 0 {
			assert.Zero(t, got.Wrong)
			continue
		}
		assert.EqualValues(t, 1, got.Wrong)
		require.Len(t, problems, 1)
		assert.Contains(t, problems[0].Error(), "by anchors")
	}
}
