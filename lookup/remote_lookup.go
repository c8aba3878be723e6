package lookup

import (
	"context"
	"errors"
	"runtime"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/ctxerr"
)

// remoteLookup is the coordinator.KeyStore of one lookup over the backend. It holds memory for the keys
// of the current round, and a CPU token while it builds them or reads answers. It waits for memory
// without a token. Every wait ends with ctx.
//
// The keys of a long prompt are milliseconds of work. If as many workers as processors built keys
// at a time, the event loops would wait for the goroutine scheduler, which has no priorities. Rounds
// of few keys have tokens of their own, so that they do not wait for those of many. Whoever compares many blocks
// with those found gives its token to others now and then.
type remoteLookup struct {
	remote      *remote
	ctx         context.Context
	peek        bool          // remote.peeker is asked
	tokens      chan struct{} // those that the current round takes one of
	hasCPU      bool
	turn        int       // blocks that may be compared or recorded before the token is given to others
	memory      *keyBytes // of the keys and answers of the current round, nil for none
	incomplete  bool      // the last call failed, or was not made, because ctx had ended
	refused     error     // ErrTooManyKeys or ErrNoMemory: no further call is made
	rememberFor int64     // ns for which what was found is known
	remembered  bool      // some block was known
	call        callBegin // the last one; zero before
}

var _ coordinator.BlockStore = (*remoteLookup)(nil)

// lease returns a lease that waits for a CPU token. The caller must call end.
func (r *remote) newLookup(ctx context.Context) *remoteLookup {
	l := &remoteLookup{remote: r, ctx: ctx, tokens: r.smallCPU, rememberFor: r.rememberFor()}
	l.takeCPU()
	return l
}

// Reserve waits for memory. It fails with ErrTooManyKeys and ErrNoMemory as keyMemory.acquire does.
func (l *remoteLookup) Reserve(bytes int64) (err error) {
	l.releaseMemory() // of the round before
	l.freeCPU()
	l.memory, err = l.remote.keyMemory.acquire(l.ctx, bytes)
	switch {
	case errors.Is(err, ErrTooManyKeys) || errors.Is(err, ErrNoMemory):
		l.remote.rejected.Add(1)
		l.refused = err
		return err
	case err != nil:
		l.incomplete = true
		return l.remote.countLate(err, false)
	}
	if l.tokens = l.remote.cpu; bytes <= smallRoundBytes {
		l.tokens = l.remote.smallCPU
	}
	if l.takeCPU(); !l.hasCPU {
		l.incomplete = true
		return l.remote.countLate(l.ctx.Err(), false)
	}
	return nil
}

// turnBlocks is how many blocks are compared with those found, or recorded, in about 50 microseconds.
const turnBlocks = 256

// useTurn counts blocks that are compared or recorded next. At the end of a turn others get the CPU token first, and then the
// processor: lookups that hand the token on to each other would keep it from event loops.
func (l *remoteLookup) useTurn(blocks int) {
	if l.turn -= blocks; l.turn <= 0 && l.hasCPU {
		l.freeCPU()
		runtime.Gosched()
		l.takeCPU()
	}
}

// smallRoundBytes is how much memory a round of few keys takes at most: 500 keys, built in 100 microseconds.
const smallRoundBytes = 128 << 10

// Exists asks the backend. It holds no CPU token meanwhile.
func (l *remoteLookup) Exists(keys *coordinator.Keys) ([]int, error) {
	l.freeCPU()
	l.call = l.remote.remembered.begin()
	answers, err := l.remote.exists(l.ctx, keys, l.memory, l.peek)
	l.incomplete = err != nil && ctxerr.Of(l.ctx) != nil
	l.takeCPU()
	return answers, err
}

func (l *remoteLookup) releaseMemory() {
	l.memory.release()
	l.memory = nil
}

func (l *remoteLookup) end() {
	l.releaseMemory()
	l.freeCPU()
}

// takeCPU waits for a CPU token. If ctx ends first it returns without one: no call is made any more.
func (l *remoteLookup) takeCPU() {
	select {
	case l.tokens <- struct{}{}:
		l.hasCPU, l.turn = true, turnBlocks
	case <-l.ctx.Done():
	}
}

// freeCPU frees the CPU token if the lease holds one.
func (l *remoteLookup) freeCPU() {
	if l.hasCPU {
		<-l.tokens
		l.hasCPU = false
	}
}
