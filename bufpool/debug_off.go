//go:build !race && !hitline_debug

package bufpool

// Debug says whether this build has the traps for violations of ownership: those with the
// race detector or with the tag hitline_debug have them.
const Debug = false

// The stand-ins for what debug_on.go does. Every call is behind a test of Debug, so the
// compiler leaves it out.

type ledger[T any] struct{}

func (ledger[T]) add(*T) {}

var (
	releasedBuffers ledger[Buffer]
	releasedWords   ledger[Words]
)

func poisonBytes([]byte) {}

func poisonWords([]uint64) {}
