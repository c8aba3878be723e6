package lookup

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"sync"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// blockMemory remembers the blocks that calls of the backend have found on all their ranks, and
// when: a store with leases keeps each of them for a lease from that time on. A time is that at which a
// call was about to be written, in monotime. Nothing is remembered of absent blocks. Safe for
// concurrent use.
//
// Its memory is bounded. There are two generations: when young is full, or has served for keep, old
// is dropped and young becomes old. Old blocks that were asked for again stay, at most half a
// generation of them: who asks for many blocks once takes the places of others that ask once. Event
// loops take mu: no hold of it does more than the work of some hundred blocks.
type blockMemory struct {
	maxBlocks  int            // of a generation, a multiple of chunkBlocks
	account    *MemoryAccount // counts what they take, nil for none
	storeEpoch func() uint64  // of the store, now
	now        func() int64   // monotime.Now, but in tests
	newTable   func(maxBlocks int) *blockTable

	making     sync.Mutex   // held while a generation is made; taken before mu
	mu         sync.RWMutex // guards the fields below
	keep       int64        // ns for which blocks are remembered at least, unless they are too many; 0: nothing is
	epoch      uint64       // in which young and old were found; it never falls
	young, old *blockTable
	began      int64 // when young became young
}

// groupKeys names a group of all pools whose keys of it are the same: the first bytes of the SHA-256 of what
// they begin with.
type groupKeys [16]byte

// callBegin is one call of the backend that finds blocks.
type callBegin struct {
	written int64  // a time at which it was not written yet
	epoch   uint64 // of the store, at that time
}

const (
	// maxRememberedHashLen is the length of SHA-256. No engine has longer hashes, and none are remembered.
	maxRememberedHashLen = sha256.Size
	// maxRememberedBytes is 259,000 blocks in each generation, a fifth of that for renewals, and 16
	// MiB of their requests.
	maxRememberedBytes = 64 << 20
)

// newBlockMemory returns one that remembers nothing until setKeep is called.
func newBlockMemory(maxBytes int64, account *MemoryAccount, storeEpoch func() uint64) *blockMemory {
	chunks := max(1, int(maxBytes/(2*tableBlockBytes*chunkBlocks)))
	return &blockMemory{maxBlocks: chunks * chunkBlocks, account: account, storeEpoch: storeEpoch, now: monotime.Now, newTable: newBlockTable}
}

// newGroupKeys returns the group whose keys begin with prefixes, one for each of its ranks.
func newGroupKeys(prefixes []string) groupKeys {
	var text []byte
	for _, prefix := range prefixes {
		text = append(binary.AppendUvarint(text, uint64(len(prefix))), prefix...)
	}
	sum := sha256.Sum256(text)
	return groupKeys(sum[:])
}

// begin returns a call that has not been written yet.
func (m *blockMemory) begin() callBegin { return callBegin{written: m.now(), epoch: m.storeEpoch()} }

// newGroupBlock returns a block of a group without its hash. It returns false if no such block is remembered.
func newGroupBlock(g groupKeys, hashes coordinator.Hashes) (groupBlock, bool) {
	n := hashes.HashLen()
	return groupBlock{group: g, hashLen: uint8(n)}, n <= maxRememberedHashLen
}

// lookup returns the blocks that a call of this epoch has found less than age nanoseconds ago.
// blocks has a bit for each block asked about: the hash of bit i is hashes.At(first + i*stride).
func (m *blockMemory) lookup(g groupKeys, hashes coordinator.Hashes, first, stride int, blocks uint64, age int64) (found uint64) {
	block, ok := newGroupBlock(g, hashes)
	if !ok || age <= 0 {
		return 0
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.young.len()+m.old.len() == 0 || m.epoch != m.storeEpoch() {
		return 0
	}
	since, inYoung, inOld := m.now()-age, -1, -1 // the last block is at these indexes
	for rest := blocks; rest != 0; rest &= rest - 1 {
		copy(block.hash[:], hashes.At(first+bits.TrailingZeros64(rest)*stride))
		if inOld++; m.old.isAt(&block, inOld) && m.old.use(inOld, since) {
			found |= rest & -rest
			continue // without a look at the slots of young
		}
		if inYoung = m.young.find(&block, inYoung+1); inYoung >= 0 && m.young.use(inYoung, since) {
			found |= rest & -rest
			inOld = -1
			continue
		}
		if inOld = m.old.find(&block, inOld); inOld >= 0 && m.old.use(inOld, since) {
			found |= rest & -rest
		}
	}
	return found
}

// add remembers blocks, as in lookup, that a call has found and leased on all ranks. It remembers
// nothing if an epoch of the store has begun since the call began, and none for which the account
// has no memory.
func (m *blockMemory) add(call callBegin, g groupKeys, hashes coordinator.Hashes, first, stride int, blocks uint64) {
	block, ok := newGroupBlock(g, hashes)
	if !ok || blocks == 0 {
		return
	}
	m.dropOlder(call.epoch)
	if m.isDue() {
		m.beginGeneration()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.young == nil || call.epoch != m.epoch {
		return
	}
	for last, rest := -1, blocks; rest != 0; rest &= rest - 1 {
		copy(block.hash[:], hashes.At(first+bits.TrailingZeros64(rest)*stride))
		if last = m.young.put(&block, last+1, call.written, m.account.Reserve); last < 0 {
			return
		}
	}
}

// isDue reports whether a generation must begin: young has served for keep, or may have no place for the blocks
// of a call of add.
func (m *blockMemory) isDue() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.keep != 0 && (m.young == nil || m.now()-m.began >= m.keep || m.young.len()+64 > m.maxBlocks)
}

// beginGeneration begins a generation, unless another goroutine is about to. The table is made
// before mu is taken: that takes longer than an event loop may wait.
func (m *blockMemory) beginGeneration() {
	if !m.making.TryLock() {
		return
	}
	defer m.making.Unlock()
	if !m.isDue() || !m.account.Reserve(int64(4*numSlots(m.maxBlocks))) {
		return
	}
	m.mu.RLock()
	old, epoch, since := m.old, m.epoch, m.now()-m.keep
	m.mu.RUnlock()
	t := m.newTable(m.maxBlocks)
	t.addUsed(old, since, m.account.Reserve)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keep == 0 || m.epoch != epoch {
		m.account.Free(t.bytes())
		return
	}
	m.account.Free(m.old.bytes())
	m.young, m.old, m.began = t, m.young, m.now()
}

// setKeep sets for how many nanoseconds blocks are remembered. 0 drops them all.
func (m *blockMemory) setKeep(keep int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keep = keep; keep == 0 {
		m.drop()
	}
}

// dropOlder drops the blocks of epochs before this one. Until it is called nobody is told of them,
// but they take memory.
func (m *blockMemory) dropOlder(epoch uint64) {
	m.mu.RLock()
	older := m.epoch < epoch
	m.mu.RUnlock()
	if !older {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.epoch < epoch {
		m.drop()
		m.epoch = epoch
	}
}

// drop drops all blocks. m.mu is held.
func (m *blockMemory) drop() {
	m.account.Free(m.young.bytes() + m.old.bytes())
	m.young, m.old = nil, nil
}
