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

func TestMapped(t *testing.T) {
	before := Memory{heap: 10, resident: 100, runtime: 50}
	assert.EqualValues(t, 30, Memory{heap: 10, resident: 150, runtime: 70}.mapped(before))
	assert.EqualValues(t, 35, Memory{heap: 15, resident: 150, runtime: 70}.Since(before))
	assert.EqualValues(t, 0, Memory{heap: 15, resident: 110, runtime: 70}.mapped(before))
}
