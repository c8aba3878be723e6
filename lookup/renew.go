package lookup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/ctxerr"
)

// ErrRenew refuses to renew where there is nothing to renew.
var ErrRenew = fmt.Errorf("%w: this pool has nothing to renew, as its store has no leases or backend.mooncake.renew is never", ErrUnsupported)

// renewKeys is how many keys a call of a renewal asks for, or those of one block: under a millisecond of a
// store, which a lookup may have to wait for.
const renewKeys = 256

// CheckRenew returns ErrRenew if Service.Renew does.
func (p *PoolBackend) CheckRenew() error {
	if p.Info().Renewal == RenewNever {
		return ErrRenew
	}
	return nil
}

// Renew asks the backend for the blocks that an engine would have saved of the first tokens of a prompt, so
// that the store does not evict them: those before the start of a lookup. hashes are those of these tokens,
// and borrowed until it returns. What the backend was asked for within Lease is not asked again.
//
// It asks in calls of some 256 keys, which it spreads over a part of the lease, and takes at most
// half of Lease. If a call fails, or is late several times, or the time is up, the rest is left out
// and an error returned. If an epoch of the store begins, the rest is pointless, and left out. It
// fails with ErrRenew, and for hashes as Store does. A server has a Renewer.
func (s *Service) Renew(ctx context.Context, hashes coordinator.Hashes) error {
	if err := s.remote.CheckRenew(); err != nil {
		return err
	}
	if err := checkKeys(hashes); err != nil {
		return err
	}
	n := newRenewal(s, hashes)
	defer n.end()
	for p := (pacer{}); n.calls > 0; {
		due := time.NewTimer(time.Until(p.due(n, n.calls)))
		select {
		case <-due.C:
		case <-ctx.Done():
			due.Stop()
			return fmt.Errorf("renew: %w", ctx.Err())
		}
		if err := p.ask(ctx, n); err != nil {
			return fmt.Errorf("renew: %w", err)
		}
	}
	return nil
}

// renewal is a request to renew, which is done one call after the other.
type renewal struct {
	rules  // of the service, which may store by another retention interval than the pool
	pool   *PoolBackend
	hashes coordinator.Hashes
	epoch  uint64 // of the store, when it was made
	made   time.Time
	// target is when the last call should begin, deadline when it is given up.
	target, deadline time.Time
	calls            int // that are left, at most
	next             func() (renewalCall, bool)
	stop             func() // ends next; both are nil before the first call
	call             renewalCall
	tries            int // of call that have failed, 0 if it is over
}

// maxRenewalTries is how often a call is made that is late: it may succeed when there is less load.
const maxRenewalTries = 3

// renewalCall is one call of a renewal.
type renewalCall struct {
	group    int
	prefixes []string           // of the keys, by rank
	blocks   coordinator.Hashes // borrowed until the next call
	left     int                // calls after it, at most
}

// newRenewal returns a renewal. The caller must call end.
func newRenewal(s *Service, hashes coordinator.Hashes) *renewal {
	now, lease := time.Now(), s.remote.Info().Lease
	n := &renewal{
		rules: s.rules, pool: s.remote, hashes: hashes, epoch: s.remote.shared.memory.epoch.now(),
		made: now, target: now.Add(lease * 3 / 8), deadline: now.Add(lease / 2),
	}
	for g := range s.coord.NumGroups() {
		n.calls += s.maxRenewalCalls(g, hashes.Len()/s.coord.Stride(g))
	}
	return n
}

// maxRenewalCalls returns how many calls so many positions of a group take at most.
func (r *rules) maxRenewalCalls(g, positions int) int {
	if r.coord.StoresStates(g) {
		positions = min(positions, 1)
	}
	perCall := r.renewedPerCall(g)
	return (positions + perCall - 1) / perCall
}

// renewedPerCall returns how many blocks of a group a call asks for.
func (r *rules) renewedPerCall(g int) int { return max(1, renewKeys/len(r.coord.Ranks(g))) }

// end ends a renewal.
func (n *renewal) end() {
	if n.stop != nil {
		n.stop()
	}
}

// errRenewLate ends a renewal that takes too long.
var errRenewLate = ctxerr.Explain(context.DeadlineExceeded, errors.New("half a lease was over before the store was asked for all"))

// ask makes the next call, if there is one, or the last one again, and updates calls.
func (n *renewal) ask(ctx context.Context) error {
	store := n.pool.shared.memory
	switch {
	case n.epoch != store.epoch.now():
		n.calls = 0
		return nil
	case time.Now().After(n.deadline):
		return errRenewLate
	}
	if n.next == nil {
		if err := n.begin(); err != nil {
			return err
		}
	}
	if n.tries == 0 {
		ok := false
		if n.call, ok = n.next(); !ok {
			n.calls = 0
			return nil
		}
	}
	if err := n.pool.askRenewal(ctx, &n.call); err != nil {
		n.calls = n.call.left + 1
		if n.tries++; n.tries == maxRenewalTries || n.epoch != store.epoch.now() {
			return err
		}
		return nil
	}
	n.calls, n.tries = n.call.left, 0
	return nil
}

// begin makes next.
func (n *renewal) begin() error {
	tokens := int64(n.hashes.Len()) * int64(n.rules.pool.HashBlockSize)
	groups, err := n.coord.StoredChunks(nil, tokens, 0, coordinator.NoPrompt)
	if err != nil {
		return err
	}
	lease := int64(n.pool.Info().Lease)
	n.pool.shared.memory.renewed.setKeep(lease)
	left := n.calls
	n.next, n.stop = iter.Pull(func(yield func(renewalCall) bool) {
		for g := range groups {
			w := renewalWalk{
				renewal: n, lease: lease, yield: yield,
				renewalCall: renewalCall{group: g, prefixes: n.keyPrefixes(g)},
				stride:      n.coord.Stride(g), perCall: n.renewedPerCall(g) * n.hashes.HashLen(),
			}
			w.positions = n.hashes.Len() / w.stride
			left -= n.maxRenewalCalls(g, w.positions)
			w.after = left
			if !w.walk(&groups[g]) {
				return
			}
		}
	})
	return nil
}

// renewalWalk finds the blocks of one group of a prompt that are due, and yields them in calls.
type renewalWalk struct {
	renewal *renewal
	lease   int64 // ns
	yield   func(renewalCall) bool
	renewalCall
	stride    int
	perCall   int // bytes of hashes
	positions int // of the group
	after     int // calls of the groups after it, at most
	due       []byte
}

// walk yields the chunks that an engine would have saved, or of states the one at the end: which
// others an engine has saved is not known. It returns false if it must stop.
func (w *renewalWalk) walk(chunks *coordinator.StoredChunks) bool {
	if w.renewal.coord.StoresStates(w.group) {
		return (w.positions == 0 || w.word(w.positions-1, 1)) && w.flush(w.positions)
	}
	for chunk := int64(0); ; {
		start, end, ok := chunks.Next(chunk)
		if !ok {
			return w.flush(w.positions)
		}
		for chunk = start; chunk < end; chunk += 64 {
			if !w.word(int(chunk), ^uint64(0)>>max(0, chunk+64-end)) {
				return false
			}
		}
		chunk = end
	}
}

// word adds those of up to 64 chunks that the backend was not asked for within a lease, and yields full calls.
func (w *renewalWalk) word(chunk int, due uint64) bool {
	first := chunk*w.stride + w.stride - 1
	p, hashes := w.renewal.pool, w.renewal.hashes
	for _, asked := range []*blockMemory{p.shared.memory.renewed, p.shared.memory.present} {
		due &^= asked.lookup(p.groups[w.group], hashes, first, w.stride, due, w.lease)
	}
	for ; due != 0; due &= due - 1 {
		i := bits.TrailingZeros64(due)
		w.due = append(w.due, hashes.At(first+i*w.stride)...)
		if len(w.due) >= w.perCall && !w.flush(chunk+i+1) {
			return false
		}
	}
	return true
}

// flush yields the blocks that are due, which are before position next, if there are any.
func (w *renewalWalk) flush(next int) bool {
	w.blocks = coordinator.NewHashes(w.due, w.renewal.hashes.HashLen())
	w.left = w.after + w.renewal.maxRenewalCalls(w.group, w.positions-next)
	w.due = w.due[:0]
	return w.blocks.Len() == 0 || w.yield(w.renewalCall)
}

// askRenewal makes a call of the backend, and remembers what it was asked for and has found.
func (p *PoolBackend) askRenewal(ctx context.Context, call *renewalCall) error {
	blocks, group, store := call.blocks, p.groups[call.group], p.shared.memory
	var asked, found callBegin
	onRanks, err := p.askAside(ctx, []groupBlocks{{call.prefixes, blocks}}, false, func() {
		asked, found = store.renewed.begin(), store.present.begin()
	})
	if err != nil {
		return err
	}
	p.renewedKeys.Add(int64(blocks.Len() * len(call.prefixes)))
	for first := 0; first < blocks.Len(); first += 64 {
		n, present := min(64, blocks.Len()-first), uint64(0)
		for i, ranks := range onRanks[first : first+n] {
			if ranks == len(call.prefixes) {
				present |= 1 << i
			}
		}
		store.renewed.add(asked, group, blocks, first, 1, ^uint64(0)>>(64-n))
		store.present.add(found, group, blocks, first, 1, present)
	}
	return nil
}
