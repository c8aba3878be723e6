package tokens

import (
	"encoding/binary"

	"github.com/hitline/hitline/coordinator"
)

// Event is what an account is told. An ask has the numbers of a lookup, its result, and fingerprints of at most maxSamples
// of its blocks; others are changes of the pool. It belongs to whoever made it, until Record or Drop gives it back. Not
// safe for concurrent use.
type Event struct {
	Prompt
	// Refused is set if the lookup was refused before all of its hashes were read: they teach nothing.
	Refused bool
	// Answered is set if the store answered and the answer was written. What follows is read only then.
	Answered bool
	Hit      int64 // in tokens
	// Found is how many leading blocks of the prompt, from token 0 on, all full-attention groups hold; in a pool without
	// such a group, those before the hit. Blocks before Start count as found.
	Found int
	// Whole is how many leading blocks every group holds of which the lookup needed them.
	Whole int
	// Missing are some blocks that were not found, over a store. They belong to the account from Record on.
	Missing Missing
	// EndBlock is the block that ends the hit, and EndGroup the group that lacks it, if that is no full-attention group.
	// Otherwise EndBlock is negative: block Found ends the hit.
	EndBlock, EndGroup int

	account *Account
	asker   string
	kind    eventKind
	rank    int   // of eventStored and eventRemoved
	at      int64 // when it ended, in monotime

	added   int  // hashes
	all     bool // hashes are sampled
	sampled int  // hashes that are sampled: those of whole blocks of the prompt
	first   uint64
	last    uint64
	step    int    // of blocks between head and tail every so many-th is looked at, counted from token 0
	rate    uint64 // it is sampled if its selector is below it
	samples []sample
}

// sample is one block of a prompt.
type sample struct {
	block       int // from token 0 on
	fingerprint uint64
}

// All blocks of a prompt of at most maxSamples are sampled; of a longer one the first headSamples, the last tailSamples, and
// up to middleSamples between, chosen by their hashes: prompts that have blocks in common choose the same ones. Of very many
// blocks about lookedAt are looked at, as an event loop does it. A block is always at the same place of a prompt, so
// that is no other choice.
const (
	maxSamples    = 256
	headSamples   = 64
	tailSamples   = 64
	middleSamples = maxSamples - headSamples - tailSamples
	lookedAt      = 4 * middleSamples
)

// begin prepares the event for a number of hashes, of which sampled are of whole blocks of the prompt.
func (a *Event) begin(sampled int) {
	a.sampled, a.step, a.rate = sampled, 1, ^uint64(0)
	between := max(0, sampled-headSamples-tailSamples)
	for between/(2*a.step) >= lookedAt {
		a.step *= 2
	}
	// On average three quarters of the places are filled, so that all are filled rarely.
	if n := uint64(between / a.step); n > middleSamples {
		a.rate = ^uint64(0) / n * (middleSamples * 3 / 4)
	}
}

// AddHashes samples the next whole hashes of hashLen bytes each. They are borrowed until it returns.
func (a *Event) AddHashes(hashes []byte, hashLen int) {
	n := len(hashes) / hashLen
	if n == 0 {
		return
	}
	first, end := a.firstBlock(), a.added+n
	for i := a.added; i < min(end, a.sampled); i++ {
		if !a.all && a.sampled > maxSamples && i >= headSamples && i < a.sampled-tailSamples {
			to := min(end, a.sampled-tailSamples)
			a.addMiddle(hashes[(i-a.added)*hashLen:(to-a.added)*hashLen], hashLen, first+i)
			i = to - 1
			continue
		}
		hash := hashes[(i-a.added)*hashLen:][:hashLen]
		a.samples = append(a.samples, sample{first + i, fingerprint(hash)})
	}
	if a.added == 0 {
		a.first = fingerprint(hashes[:hashLen])
	}
	a.last = fingerprint(hashes[(n-1)*hashLen : n*hashLen])
	a.added = end
}

// Fill sets what the store has answered: the hit in tokens, and where the blocks end that were found.
func (a *Event) Fill(hit int64, e coordinator.Ending) {
	a.Answered, a.Hit, a.Found, a.Whole = true, hit, e.Found, e.Found
	if e.Group >= 0 {
		a.EndBlock, a.EndGroup = e.Hash, e.Group
		a.Whole = int(max(hit, a.Start) / a.account.pool.HashBlock)
	}
}

// addMiddle samples hashes between head and tail, the first of a block. A long prompt has a hundred thousand.
func (a *Event) addMiddle(hashes []byte, hashLen, block int) {
	n := len(hashes) / hashLen
	for i := -block & (a.step - 1); i < n && len(a.samples) < headSamples+middleSamples; i += a.step {
		if hash := hashes[i*hashLen : (i+1)*hashLen]; selector(hash) < a.rate {
			a.samples = append(a.samples, sample{block + i, fingerprint(hash)})
		}
	}
}

// end returns the block that ends the hit.
func (a *Event) end() int {
	if a.EndBlock >= 0 {
		return a.EndBlock
	}
	return a.Found
}

// firstBlock returns the first block that the ask has a hash of.
func (a *Event) firstBlock() int { return int(a.Start / a.account.pool.HashBlock) }

const odd = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio: multiplying by it spreads numbers that count up

// selector returns a number by which hashes are chosen, from the last bytes of one.
func selector(hash []byte) uint64 {
	if n := len(hash); n >= 8 {
		return binary.BigEndian.Uint64(hash[n-8:]) * odd
	}
	return fingerprint(hash)
}

// fingerprint returns 64 bits of a hash, from its first and last bytes. Those of engines are uniform already; those of tests and
// gateways may count up. A peer can choose hashes of equal fingerprints, and spoils the account of its own prompts.
func fingerprint(hash []byte) uint64 {
	n := len(hash)
	first, last := uint64(n), uint64(0)
	if n >= 8 {
		first, last = binary.LittleEndian.Uint64(hash), binary.LittleEndian.Uint64(hash[n-8:])
	} else {
		for _, b := range hash {
			first = first<<8 | uint64(b)
		}
	}
	f := (first*odd ^ first>>32 ^ last) * odd
	return (f ^ f>>32) * odd
}
