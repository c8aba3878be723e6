package lookup

import (
	"context"
	"fmt"

	"github.com/hitline/hitline/coordinator"
)

// keyLease is the coordinator.KeyStore of one lookup over the backend. It holds a CPU token
// and a share of the key memory. It may wait for the CPU while it holds memory, never the
// other way round. Every wait ends with ctx.
type keyLease struct {
	remote     *Remote
	ctx        context.Context
	releaseCPU func()
	memory     *keyBytes // of the keys and answers of the current round, nil for none
	incomplete bool      // the last call failed, or was not made, because ctx had ended
}

var _ coordinator.KeyStore = (*keyLease)(nil)

// lease waits for a CPU token. The caller must call end.
func (r *Remote) lease(ctx context.Context) *keyLease {
	return &keyLease{remote: r, ctx: ctx, releaseCPU: r.acquireCPU(ctx)}
}

// Reserve waits for memory. It fails with ErrTooManyKeys if the keys alone take more than
// half of the memory of all requests.
func (l *keyLease) Reserve(bytes int64) error {
	r := l.remote
	l.releaseMemory() // of the round before
	if most := r.keyMemory.maxPerRequest(); bytes > most {
		r.rejected.Add(1)
		l.incomplete = false
		return fmt.Errorf("%w: they take %d bytes, and a request gets %d at most", ErrTooManyKeys, bytes, most)
	}
	if l.memory = r.keyMemory.tryAcquire(bytes); l.memory != nil {
		return nil
	}
	l.releaseCPU()
	l.releaseCPU = func() {}
	var err error
	if l.memory, err = r.keyMemory.acquire(l.ctx, bytes); err != nil {
		l.incomplete = true
		return r.countLate(err)
	}
	l.releaseCPU = r.acquireCPU(l.ctx)
	return nil
}

// Exists asks the backend. It holds no CPU token meanwhile.
func (l *keyLease) Exists(keys []string) ([]int, error) {
	l.releaseCPU()
	l.releaseCPU = func() {} // should the backend panic
	answers, err := l.remote.exists(l.ctx, keys, l.memory)
	l.incomplete = err != nil && ended(l.ctx) != nil
	l.releaseCPU = l.remote.acquireCPU(l.ctx)
	return answers, err
}

func (l *keyLease) releaseMemory() {
	l.memory.release()
	l.memory = nil
}

func (l *keyLease) end() {
	l.releaseMemory()
	l.releaseCPU()
}

// acquireCPU waits for a CPU token. The keys of a long prompt are a millisecond of work.
// If as many workers as processors built keys at a time, the event loops would wait for
// the goroutine scheduler, which has no priorities. If ctx ends first it returns without
// a token: no call is made any more.
func (r *Remote) acquireCPU(ctx context.Context) (release func()) {
	select {
	case r.cpuTokens <- struct{}{}:
		return func() { <-r.cpuTokens }
	case <-ctx.Done():
		return func() {}
	}
}
