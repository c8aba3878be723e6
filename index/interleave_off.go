//go:build !hitline_interleave

package index

import (
	"sync"
	"sync/atomic"
)

// The gate and the locks are made of these types. In builds with the tag hitline_interleave a
// test chooses the order of the operations on them, see interleave_on.go. Here they are Go's.
type (
	syncBool   = atomic.Bool
	syncInt32  = atomic.Int32
	syncUint64 = atomic.Uint64
	syncMutex  = sync.Mutex
)

// wakeup wakes the one goroutine that waits. Sends before it has waited count once.
type wakeup chan struct{}

func newWakeup() wakeup { return make(wakeup, 1) }

func (w wakeup) send() {
	select {
	case w <- struct{}{}:
	default:
	}
}

func (w wakeup) wait() { <-w }

// Bounds that the tests of interleavings lower.
const (
	gateTries = usualGateTries
	holdWork  = usualHoldWork
)
