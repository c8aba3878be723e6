//go:build !race

package bufpool

// Debug is true in builds that check the rules of ownership: those with the race detector.
const Debug = false

// The declarations below mirror debug_on.go and do nothing. Every call is guarded by Debug,
// so the compiler removes it.

type releaseTracker[T any] struct{}

func (releaseTracker[T]) record(*T) {}

var (
	releasedBuffers releaseTracker[Buffer]
	releasedWords   releaseTracker[Words]
)

func poisonBytes([]byte) {}

func poisonWords([]uint64) {}
