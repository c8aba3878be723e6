package lookup

import (
	"context"
	"errors"
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/ctxerr"
)

// keyLease is the coordinator.KeyStore of one lookup over the backend. It holds a CPU token
// and a share of the key memory. It may wait for the CPU while it holds memory, never the
// other way round. Every wait ends with ctx.
type keyLease struct {
	remote     *Remote
	ctx        context.Context
	small      bool      // it has few hashes, and no round had many keys
	releaseCPU func()    // nil if it holds no token
	memory     *keyBytes // of the keys and answers of the current round, nil for none
	incomplete bool      // the last call failed, or was not made, because ctx had ended
}

var _ coordinator.KeyStore = (*keyLease)(nil)

// lease waits for a CPU token for a lookup with this many bytes of hashes. The caller must
// call end.
func (r *Remote) lease(ctx context.Context, hashBytes int) *keyLease {
	l := &keyLease{remote: r, ctx: ctx, small: r.IsSmall(hashBytes)}
	l.takeCPU()
	return l
}

// Reserve waits for memory. It fails with ErrTooManyKeys if the keys alone take more than
// half of the memory of all requests, and with ErrNoMemory if the account refuses.
func (l *keyLease) Reserve(bytes int64) (err error) {
	r := l.remote
	l.releaseMemory() // of the round before
	if most := r.keyMemory.maxPerRequest(); bytes > most {
		return l.reject(fmt.Errorf("%w: they take %d bytes, and a request gets %d at most", ErrTooManyKeys, bytes, most))
	}
	if l.small && !r.keyMemory.isSmall(bytes) { // few hashes, and many keys for each
		l.small = false
		l.freeCPU() // it may be one for small lookups
	}
	if l.memory, err = r.keyMemory.tryAcquire(bytes); errors.Is(err, errWait) {
		l.freeCPU()
		l.memory, err = r.keyMemory.acquire(l.ctx, bytes)
	}
	switch {
	case errors.Is(err, ErrNoMemory):
		return l.reject(err)
	case err != nil:
		l.incomplete = true
		return r.countLate(err)
	}
	l.takeCPU()
	return nil
}

// Pause yields the processor to event loops.
func (l *keyLease) Pause() { l.remote.yielder.yield() }

// reject counts a round that is not made for want of memory, and returns why.
func (l *keyLease) reject(why error) error {
	l.remote.rejected.Add(1)
	l.incomplete = false
	return why
}

// Exists asks the backend. It holds no CPU token meanwhile.
func (l *keyLease) Exists(keys []string) ([]int, error) {
	l.freeCPU()
	answers, err := l.remote.exists(l.ctx, keys, l.memory)
	l.incomplete = err != nil && ctxerr.Of(l.ctx) != nil
	l.takeCPU()
	return answers, err
}

func (l *keyLease) releaseMemory() {
	l.memory.release()
	l.memory = nil
}

func (l *keyLease) end() {
	l.releaseMemory()
	l.freeCPU()
}

// takeCPU waits for a CPU token unless the lease holds one.
func (l *keyLease) takeCPU() {
	if l.releaseCPU == nil {
		l.releaseCPU = l.remote.acquireCPU(l.ctx, l.small)
	}
}

// freeCPU frees the CPU token if the lease holds one.
func (l *keyLease) freeCPU() {
	if l.releaseCPU != nil {
		l.releaseCPU()
		l.releaseCPU = nil
	}
}

// acquireCPU waits for a CPU token. The keys of a long prompt are milliseconds of work. If as
// many workers as processors built keys at a time, the event loops would wait for the
// goroutine scheduler, which has no priorities. Small lookups have tokens of their own, so
// that they do not wait for long ones. If ctx ends first it returns without a token: no call
// is made any more.
func (r *Remote) acquireCPU(ctx context.Context, small bool) (release func()) {
	var ownTokens chan struct{} // nil: never ready
	if small {
		ownTokens = r.smallCPUTokens
	}
	select {
	case r.cpuTokens <- struct{}{}:
		return func() { <-r.cpuTokens }
	case ownTokens <- struct{}{}:
		return func() { <-ownTokens }
	case <-ctx.Done():
		return func() {}
	}
}
