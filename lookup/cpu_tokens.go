package lookup

import (
	"context"
	"runtime"
)

// cpuTokens bound the lookups that build keys or read answers at a time. Each holds an element: of small if its
// round has few keys, which so does not wait for rounds of many, else of large.
//
// The keys of a long prompt are milliseconds of work. If as many workers as processors built keys
// at a time, the event loops would wait for the goroutine scheduler, which has no priorities.
type cpuTokens struct{ large, small chan struct{} }

func newCPUTokens(processors int) *cpuTokens {
	return &cpuTokens{large: make(chan struct{}, max(1, processors/2)), small: make(chan struct{}, max(1, processors/8))}
}

// cpuToken is the token of one lookup, which belongs to one goroutine. Every wait ends with ctx.
type cpuToken struct {
	ctx    context.Context
	tokens chan struct{} // those that the current round takes one of
	held   bool
	turn   int // blocks that may be compared or recorded before the token is given to others
}

// turnBlocks is how many blocks are compared with those found, or recorded, in about 50 microseconds.
const turnBlocks = 256

// take waits for a token. If ctx ends first it returns without one: no call is made any more.
func (t *cpuToken) take() {
	select {
	case t.tokens <- struct{}{}:
		t.held, t.turn = true, turnBlocks
	case <-t.ctx.Done():
	}
}

// free frees the token if it is held.
func (t *cpuToken) free() {
	if t.held {
		<-t.tokens
		t.held = false
	}
}

// useTurn counts blocks that are compared or recorded next. At the end of a turn others get the
// token first, and then the processor: lookups that hand the token on to each other would keep it
// from event loops.
func (t *cpuToken) useTurn(blocks int) {
	if t.turn -= blocks; t.turn <= 0 && t.held {
		t.free()
		runtime.Gosched()
		t.take()
	}
}
