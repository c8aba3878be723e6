package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/coordinator"
)

// A small sample does not prove that a rank has no block.
func TestProvesAbsence(t *testing.T) {
	c := comparerOf(t, coordinator.Pool{ModelName: "m", TPSize: 2, NumKVHead: 2})
	problems := func(n int, complete bool) []string {
		var f Findings
		c.compareSample(parseSample(Sample{Keys: keysOfGroups(c, n), Complete: complete}), &f)
		return f.Problems
	}
	assert.Empty(t, problems(20, false))
	assert.Len(t, problems(20, true), 1)
	assert.Len(t, problems(minKeysPerGroupRank*2, false), 1, "large enough")
}
