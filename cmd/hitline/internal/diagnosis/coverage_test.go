package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/coordinator"
)

// Full attention has as many blocks as any other group, except by chance or after evictions.
func TestCoverage(t *testing.T) {
	fineGrained := poolOf(full16, mambaAlign64)
	fineGrained.Revision = coordinator.Revision20260817
	for name, test := range map[string]struct {
		pool     coordinator.Pool
		keys     []int // by group
		complete bool
		problem  bool
	}{
		"as an engine stores":  {poolOf(full16, window32), []int{200, 60}, true, false},
		"the other way":        {poolOf(full16, window32), []int{60, 200}, true, true},
		"in part of the keys":  {poolOf(full16, window32), []int{60, 200}, false, true},
		"less than twice":      {poolOf(full16, window32), []int{101, 200}, true, false},
		"too few to decide":    {poolOf(full16, window32), []int{5, minKeysPerGroupRank - 1}, true, false},
		"a small part":         {poolOf(full16, window32), []int{10, minKeysPerGroupRank}, false, false},
		"nothing of a group":   {poolOf(full16, window32), []int{0, 200}, false, false},
		"larger blocks":        {poolOf(blocks64, window32), []int{60, 200}, true, false},
		"larger blocks, fewer": {poolOf(blocks64, window32), []int{20, 200}, true, true},
		"fine-grained":         {fineGrained, []int{60, 200}, true, false},
		"states":               {poolOf(full16, mamba16), []int{60, 200}, true, true},
	} {
		c := comparerOf(t, test.pool)
		var f Findings
		c.compareCoverage(parseSample(Sample{Keys: keysOfGroups(c, test.keys...), Complete: test.complete}), &f)
		assert.Equal(t, test.problem, len(f.Problems) > 0, "%s: %v", name, f.Problems)
	}
	c := comparerOf(t, poolOf(full16, window32))
	var f Findings
	c.compareCoverage(parseSample(Sample{Sets: keysOfGroups(c, 60, 200), Complete: true}), &f)
	assert.Empty(t, f.Problems, "a sample has one member of a set")
}
