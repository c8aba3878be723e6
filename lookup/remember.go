package lookup

import (
	"math/bits"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
)

// maxRemember bounds RemoteConfig.Remember while the store has not stated its lease.
const maxRemember = 10 * time.Second

// remembering is what follows from a lease that the store has stated. Immutable.
type remembering struct {
	lease       backend.Lease
	rememberFor int64 // ns for which a found block is answered from memory
}

// rememberFor returns for how many nanoseconds a found block is answered from memory, 0 for none. It is cheap.
func (b *SharedBackend) rememberFor() int64 {
	leaser, ok := b.store.(backend.Leaser)
	if !ok {
		return 0
	}
	lease := leaser.Lease()
	if r := b.remembering.Load(); r != nil && r.lease == lease {
		return r.rememberFor
	}
	return b.setLease(lease)
}

// setLease is rememberFor after the lease has changed.
func (b *SharedBackend) setLease(lease backend.Lease) int64 {
	b.leaseMu.Lock()
	defer b.leaseMu.Unlock()
	before := b.remembering.Load()
	if before != nil && before.lease == lease {
		return before.rememberFor
	}
	rememberFor := b.cfg.rememberFor(lease.Stated)
	if lease.Stated > 0 && rememberFor < b.cfg.Remember && !b.loggedRememberFor {
		b.loggedRememberFor = true
		b.breakerLog.logger.Error("found blocks are not remembered for as long as backend.mooncake.remember says: "+
			"the store's lease would leave too little time to load them",
			"backend", b.store.Name(), "configured", b.cfg.Remember, "remembered", rememberFor, "lease", lease.Stated)
	}
	keep := time.Duration(0)
	if rememberFor > 0 {
		keep = max(rememberFor, lease.Duration) // renewals ask for nothing that was found within a lease
	}
	b.remembered.setKeep(int64(keep))
	b.remembering.Store(&remembering{lease, int64(rememberFor)})
	return int64(rememberFor)
}

// rememberFor returns for how long a found block is answered from memory, by the lease that the store has stated, 0
// before.
func (c RemoteConfig) rememberFor(stated time.Duration) time.Duration {
	longest := stated / 2
	switch {
	case stated == 0 && c.Remember > 0:
		longest = maxRemember
	case c.Grouped:
		longest = stated / 4
	}
	if c.Remember == 0 {
		return longest
	}
	return max(0, min(c.Remember, longest))
}

// Known returns the blocks that were found within rememberFor.
func (l *remoteLookup) Known(g int, hashes coordinator.Hashes, first, stride int, blocks uint64) uint64 {
	l.useTurn(bits.OnesCount64(blocks))
	known := l.remote.remembered.lookup(l.remote.groups[g], hashes, first, stride, blocks, l.rememberFor)
	l.remembered = l.remembered || known != 0
	return known
}

// Found remembers blocks that the last call has found and leased. A peek leases none.
func (l *remoteLookup) Found(g int, hashes coordinator.Hashes, first, stride int, blocks uint64) {
	if l.peek {
		return
	}
	l.useTurn(bits.OnesCount64(blocks))
	l.remote.remembered.add(l.call, l.remote.groups[g], hashes, first, stride, blocks)
}

// countRemembered counts a lookup that was answered from memory alone.
func (l *remoteLookup) countRemembered() {
	if l.remembered && l.call == (callBegin{}) {
		l.remote.rememberedLookups.Add(1)
	}
}
