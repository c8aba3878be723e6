package lookup

import (
	"context"
	"errors"
	"math/bits"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/ctxerr"
)

// remoteLookup is the coordinator.KeyStore of one lookup over a store. It holds memory for the keys
// of the current round, and a CPU token while it builds them or reads answers. It waits for memory
// without a token. Every wait ends with ctx. Whoever compares many blocks with those found gives its token to
// others now and then.
type remoteLookup struct {
	pool        *PoolBackend
	mode        lookupMode
	expected    int // see LookupOptions
	cpu         cpuToken
	memory      *keyBytes // of the keys and answers of the current round, nil for none
	incomplete  bool      // the last call failed, or was not made, because ctx had ended
	refused     error     // ErrTooManyKeys or errNotRemembered: no further call is made
	rememberFor int64     // ns for which what was found is remembered
	usedMemory  bool      // some block was remembered
	call        callBegin // the last one; zero before
	left        int       // in modeRemembered: blocks that may still be compared, below 0 if the store has to be asked anyway
}

var _ coordinator.KeyStore = (*remoteLookup)(nil)

// newLookup returns a lookup that waits for a CPU token. The caller must call end.
func (p *PoolBackend) newLookup(ctx context.Context, mode lookupMode, expected int) *remoteLookup {
	l := &remoteLookup{
		pool: p, mode: mode, expected: expected, rememberFor: p.shared.memory.rememberFor(),
		cpu: cpuToken{ctx: ctx, of: p.shared.cpu, small: true},
	}
	l.cpu.take()
	return l
}

// maxRememberedBlocks is how many blocks are compared with what was found in some 150 microseconds:
// those of a prompt of maxRememberedHashes hashes in four groups. One that is not remembered costs as much as
// missCost that are, which lie side by side.
const maxRememberedBlocks, missCost = 4 * maxRememberedHashes, 16

// maxRememberedHashes is how many hashes a lookup has at most that asks nothing.
const maxRememberedHashes = 2048

var errNotRemembered = errors.New("the backend must be asked")

// Reserve waits for memory. It fails with ErrTooManyKeys, and in modeRemembered.
func (l *remoteLookup) Reserve(bytes int64) (err error) {
	if l.mode == modeRemembered { // a block is not remembered
		l.refused = errNotRemembered
		return l.refused
	}
	l.releaseMemory() // of the round before
	l.cpu.free()
	shared, requests := l.pool.shared, &l.pool.requests
	l.memory, err = shared.admitKeys(l.cpu.ctx, bytes)
	switch {
	case errors.Is(err, ErrTooManyKeys):
		requests.rejected.Add(1)
		l.refused = err
		return err
	case err != nil:
		l.incomplete = true
		return shared.countLate(requests, err, callExists)
	}
	l.cpu.small = isSmallRound(bytes)
	if l.cpu.take(); !l.cpu.held {
		l.incomplete = true
		return shared.countLate(requests, l.cpu.ctx.Err(), callExists)
	}
	return nil
}

// Exists asks the backend. It holds no CPU token meanwhile.
func (l *remoteLookup) Exists(keys *coordinator.Keys) ([]int, error) {
	l.cpu.free()
	l.call = l.pool.shared.memory.present.begin()
	answers, err := l.pool.askRound(l.cpu.ctx, keys, l.mode == modePeek)
	l.incomplete = err != nil && ctxerr.Of(l.cpu.ctx) != nil
	l.cpu.take()
	return answers, err
}

// Expected implements coordinator.KeyStore.
func (l *remoteLookup) Expected() int { return l.expected }

// Remembered returns the blocks that were found within rememberFor. In modeRemembered it returns none once
// too many were compared, or once a block of full attention is not remembered: the hit needs them all.
func (l *remoteLookup) Remembered(g int, hashes coordinator.Hashes, first, stride int, blocks uint64) uint64 {
	if l.left < 0 {
		return 0
	}
	l.cpu.spend(bits.OnesCount64(blocks))
	remembered := l.pool.shared.memory.present.lookup(l.pool.groups[g], hashes, first, stride, blocks, l.rememberFor)
	l.usedMemory = l.usedMemory || remembered != 0
	if l.mode == modeRemembered {
		l.left -= bits.OnesCount64(remembered) + missCost*bits.OnesCount64(blocks&^remembered)
		if remembered != blocks && l.pool.coord.Group(g).Kind.IsFull() {
			l.left = -1
		}
	}
	return remembered
}

// Remember remembers blocks that the last call has found and leased. A peek leases none.
func (l *remoteLookup) Remember(g int, hashes coordinator.Hashes, first, stride int, blocks uint64) {
	if l.mode == modePeek {
		return
	}
	l.cpu.spend(bits.OnesCount64(blocks))
	l.pool.shared.memory.present.add(l.call, l.pool.groups[g], hashes, first, stride, blocks)
}

// countRemembered counts a lookup that was answered from memory alone.
func (l *remoteLookup) countRemembered() {
	if l.usedMemory && l.call == (callBegin{}) {
		l.pool.rememberedLookups.Add(1)
	}
}

func (l *remoteLookup) releaseMemory() {
	l.memory.release()
	l.memory = nil
}

func (l *remoteLookup) end() {
	l.releaseMemory()
	l.cpu.free()
}
