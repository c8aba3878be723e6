package measure

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMemorySeesTheHeap(t *testing.T) {
	const size = 8 << 20
	before := SettledMemory()
	held := make([]byte, size)
	assert.GreaterOrEqual(t, MemoryNow().Since(before), int64(size-1<<20), "what else was freed meanwhile counts against it")
	after := SettledMemory()
	assert.InDelta(t, size, after.heap-before.heap, 1<<20)
	held[0]++ // alive until here
}
