package lookup

import (
	"context"
	"runtime"

	"github.com/hitline/hitline/internal/admission"
)

// numCPUTokens returns how many lookups build keys or read answers at a time: five eighths of the processors. Rounds of
// many keys get three quarters of these, about half of the processors.
//
// The keys of a long prompt are milliseconds of work. If as many workers as processors built keys
// at a time, the event loops would wait for the goroutine scheduler, which has no priorities.
func numCPUTokens(processors int) int64 { return int64(max(2, (5*processors+7)/8)) }

// cpuToken is the token of one lookup, which belongs to one goroutine. Every wait ends with ctx.
type cpuToken struct {
	ctx   context.Context
	of    *admission.Admission
	small bool // the current round is: see isSmallRound
	held  bool
	quota int // blocks that may be compared or recorded before the token is given to others
}

// quotaBlocks is how many blocks are compared with those found, or recorded, in about 50 microseconds.
const quotaBlocks = 256

// take waits for a token. If ctx ends first it returns without one: no call is made any more.
func (t *cpuToken) take() {
	if t.of.Wait(t.ctx, 1, t.small) == nil {
		t.held, t.quota = true, quotaBlocks
	}
}

// free frees the token if it is held.
func (t *cpuToken) free() {
	if t.held {
		t.of.Free(1, t.small)
		t.held = false
	}
}

// spend counts blocks that are compared or recorded next. When the quota is spent others get the
// token first, and then the processor: lookups that hand the token on to each other would keep it
// from event loops.
func (t *cpuToken) spend(blocks int) {
	if t.quota -= blocks; t.quota <= 0 && t.held {
		t.free()
		runtime.Gosched()
		t.take()
	}
}
