package lookup

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"sync"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// foundBlocks remembers the blocks that calls of the backend have found on all their ranks, and
// when: a store with leases keeps each of them for a lease from that time on. A time is that at which a
// call was about to be written, in monotime. Nothing is remembered of absent blocks. Safe for
// concurrent use.
//
// Its memory is bounded. There are two generations: when young is full, or has served for keep, old
// is dropped and young becomes old. Old blocks that were asked for again stay, at most half a
// generation of them: who asks for many blocks once takes the places of others that ask once. Event loops take mu: no hold of it does more than the work of some hundred blocks.
type foundBlocks struct {
	maxBlocks  int            // of a generation, a multiple of chunkBlocks
	account    *MemoryAccount // counts what they take, nil for none
	storeEpoch func() uint64  // of the store, now
	now        func() int64   // monotime.Now, but in tests
	newTable   func(maxBlocks int) *foundTable

	making     sync.Mutex   // held while a generation is made; taken before mu
	mu         sync.RWMutex // guards the fields below
	keep       int64        // ns for which blocks are remembered at least, unless they are too many; 0: nothing is
	epoch      uint64       // in which young and old were found; it never falls
	young, old *foundTable
	began      int64 // when young became young
}

// foundGroup names a group of all pools whose keys of it are the same: the first bytes of the SHA-256 of what
// they begin with.
type foundGroup [16]byte

// foundCall is one call of the backend that finds blocks.
type foundCall struct {
	written int64  // a time at which it was not written yet
	epoch   uint64 // of the store, at that time
}

const (
	// maxFoundHashLen is the length of SHA-256. No engine has longer hashes, and none are remembered.
	maxFoundHashLen = sha256.Size
	// maxFoundBytes is 259,000 blocks in each generation, a fifth of that for renewals, and 16 MiB of their requests.
	maxFoundBytes = 64 << 20
)

// newFoundBlocks returns one that remembers nothing until setKeep is called.
func newFoundBlocks(maxBytes int64, account *MemoryAccount, storeEpoch func() uint64) *foundBlocks {
	chunks := max(1, int(maxBytes/(2*foundBlockBytes*chunkBlocks)))
	return &foundBlocks{maxBlocks: chunks * chunkBlocks, account: account, storeEpoch: storeEpoch, now: monotime.Now, newTable: newFoundTable}
}

// newFoundGroup returns the group whose keys begin with prefixes, one for each of its ranks.
func newFoundGroup(prefixes []string) foundGroup {
	var text []byte
	for _, prefix := range prefixes {
		text = append(binary.AppendUvarint(text, uint64(len(prefix))), prefix...)
	}
	sum := sha256.Sum256(text)
	return foundGroup(sum[:])
}

// begin returns a call that has not been written yet.
func (f *foundBlocks) begin() foundCall { return foundCall{written: f.now(), epoch: f.storeEpoch()} }

// newFoundBlock returns a block of a group without its hash. It returns false if no such block is remembered.
func newFoundBlock(g foundGroup, hashes coordinator.Hashes) (foundBlock, bool) {
	n := hashes.HashLen()
	return foundBlock{group: g, hashLen: uint8(n)}, n <= maxFoundHashLen
}

// found returns the blocks that a call of this epoch has found less than age nanoseconds ago. blocks has a bit for
// each block asked about: the hash of bit i is hashes.At(first + i*stride).
func (f *foundBlocks) found(g foundGroup, hashes coordinator.Hashes, first, stride int, blocks uint64, age int64) (found uint64) {
	block, ok := newFoundBlock(g, hashes)
	if !ok || age <= 0 {
		return 0
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.young.len()+f.old.len() == 0 || f.epoch != f.storeEpoch() {
		return 0
	}
	since, inYoung, inOld := f.now()-age, -1, -1 // the last block is at these indexes
	for rest := blocks; rest != 0; rest &= rest - 1 {
		copy(block.hash[:], hashes.At(first+bits.TrailingZeros64(rest)*stride))
		if inOld++; f.old.isAt(&block, inOld) && f.old.use(inOld, since) {
			found |= rest & -rest
			continue // without a look at the slots of young
		}
		if inYoung = f.young.find(&block, inYoung+1); inYoung >= 0 && f.young.use(inYoung, since) {
			found |= rest & -rest
			inOld = -1
			continue
		}
		if inOld = f.old.find(&block, inOld); inOld >= 0 && f.old.use(inOld, since) {
			found |= rest & -rest
		}
	}
	return found
}

// record remembers blocks, as in found, that a call has found and leased on all ranks. It remembers
// nothing if an epoch of the store has begun since the call began, and none for which the account has no memory.
func (f *foundBlocks) record(call foundCall, g foundGroup, hashes coordinator.Hashes, first, stride int, blocks uint64) {
	block, ok := newFoundBlock(g, hashes)
	if !ok || blocks == 0 {
		return
	}
	f.dropOlder(call.epoch)
	if f.isDue() {
		f.beginGeneration()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.young == nil || call.epoch != f.epoch {
		return
	}
	for last, rest := -1, blocks; rest != 0; rest &= rest - 1 {
		copy(block.hash[:], hashes.At(first+bits.TrailingZeros64(rest)*stride))
		if last = f.young.put(&block, last+1, call.written, f.account.TryReserve); last < 0 {
			return
		}
	}
}

// isDue reports whether a generation must begin: young has served for keep, or may have no place for the blocks
// of a call of record.
func (f *foundBlocks) isDue() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.keep != 0 && (f.young == nil || f.now()-f.began >= f.keep || f.young.len()+64 > f.maxBlocks)
}

// beginGeneration begins a generation, unless another goroutine is about to. The table is made before mu is taken:
// that takes longer than an event loop may wait.
func (f *foundBlocks) beginGeneration() {
	if !f.making.TryLock() {
		return
	}
	defer f.making.Unlock()
	if !f.isDue() || !f.account.TryReserve(int64(4*numSlots(f.maxBlocks))) {
		return
	}
	f.mu.RLock()
	old, epoch, since := f.old, f.epoch, f.now()-f.keep
	f.mu.RUnlock()
	t := f.newTable(f.maxBlocks)
	t.addUsed(old, since, f.account.TryReserve)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keep == 0 || f.epoch != epoch {
		f.account.Free(t.bytes())
		return
	}
	f.account.Free(f.old.bytes())
	f.young, f.old, f.began = t, f.young, f.now()
}

// setKeep sets for how many nanoseconds blocks are remembered. 0 drops them all.
func (f *foundBlocks) setKeep(keep int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keep = keep; keep == 0 {
		f.drop()
	}
}

// dropOlder drops the blocks of epochs before this one. Until it is called nobody is told of them, but they take memory.
func (f *foundBlocks) dropOlder(epoch uint64) {
	f.mu.RLock()
	older := f.epoch < epoch
	f.mu.RUnlock()
	if !older {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.epoch < epoch {
		f.drop()
		f.epoch = epoch
	}
}

// drop drops all blocks. f.mu is held.
func (f *foundBlocks) drop() {
	f.account.Free(f.young.bytes() + f.old.bytes())
	f.young, f.old = nil, nil
}
