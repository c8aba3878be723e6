package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/coordinator"
)

func TestFormatExcluded(t *testing.T) {
	window := func(size int) coordinator.Group {
		return coordinator.Group{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: size}
	}
	for _, test := range []struct {
		pool coordinator.Pool
		hash int
		rank coordinator.Rank
		want string
	}{
		{
			poolOf(blocks64), 0, coordinator.Rank{},
			"group 0 has a block that ends at token 16 of a prompt, and as described (full_attention, block_size 64) it stores one for every 64 tokens, not that one: compare with the engine's: block_size of pool.groups[0]",
		},
		{
			coordinator.Pool{ModelName: "m", SchedulerBlockSize: 64, Groups: []coordinator.Group{window(1)}}, 0, coordinator.Rank{},
			"group 0 has a block that ends at token 16 of a prompt, and as described (sliding_window, block_size 16, sliding_window 1) it stores none, not that one: compare with the engine's: block_size and sliding_window of pool.groups[0], scheduler_block_size (64), retention_interval",
		},
		{
			coordinator.Pool{ModelName: "m", SchedulerBlockSize: 64, UseEagle: true, Groups: []coordinator.Group{window(17)}}, 2, coordinator.Rank{},
			"group 0 has a block that ends at token 48 of a prompt, and as described (sliding_window, block_size 16, sliding_window 17) it stores 2 of every 4 blocks, not that one: compare with the engine's: block_size and sliding_window of pool.groups[0], scheduler_block_size (64), retention_interval",
		},
		{
			coordinator.Pool{ModelName: "m", Revision: coordinator.Revision20260817, TPSize: 2, Groups: []coordinator.Group{mla16, mamba16}}, 0, coordinator.Rank{TP: 1},
			"group 0 has a block on tp_rank 1, pp_rank 0, pcp 0, dcp 0, where lookups do not ask for it: compare with the engine's: tp_size, num_kv_head and the order of pool.groups",
		},
	} {
		c := comparerOf(t, test.pool)
		b := make(promptBlocks, c.rules.NumGroups())
		b[0] = []rankBlocks{{rank: test.rank, stored: make([]bool, 8), count: 1}}
		b[0][0].stored[test.hash] = true
		var f Findings
		c.compareStoredBlocks(b, &f)
		assert.Equal(t, []string{test.want}, f.Problems)
	}
}
