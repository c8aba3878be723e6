package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/coordinator"
)

// An engine sends the hashes of all tokens, and of some later ones.
func TestFitsBlockSize(t *testing.T) {
	c := comparerOf(t, poolOf(blocks64)) // aligned to 64 tokens
	for _, test := range []struct {
		tokens int64
		hashes int
		fits   bool
	}{
		{640, 40, true}, {640, 43, true}, {640, 70, true}, // the last two in the middle of an answer
		{640, 39, false}, {640, 20, false}, // a hash stands for more tokens
		{640, 80, false}, {640, 87, false}, {640, 160, false}, {640, 640, false}, // or for fewer
		{640, 90, true}, {640, 100, true}, {640, 159, true}, {640, 5000, true}, // a long answer
		{640, 0, true}, {48, 1, true}, {0, 9, true}, // too short to decide
	} {
		assert.Equal(t, test.fits, c.fitsBlockSize(test.tokens, test.hashes), "%d tokens, %d hashes", test.tokens, test.hashes)
	}
}

// A prompt with too few hashes names another block size only if that explains them.
func TestCompareBlockSize(t *testing.T) {
	c := comparerOf(t, coordinator.Pool{HashBlockSize: 16})
	for _, test := range []struct {
		tokens int64
		hashes int
		want   string
	}{
		{64, 3, "with pool.hash_block_size 16 it should have 4: give all of them"},
		{640, 20, "one for every 32 tokens"},
		{640, 80, "one for every 8 tokens"},
	} {
		var f Findings
		assert.False(t, c.compareBlockSize(promptLength{tokens: test.tokens, numHashes: test.hashes}, &f))
		assert.Len(t, f.Problems, 1)
		assert.Contains(t, f.Problems[0], test.want)
	}
}
