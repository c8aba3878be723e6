package tokens

import (
	"encoding/binary"

	"github.com/hitline/hitline/coordinator"
)

// Ask is one lookup: its numbers, its result, and fingerprints of at most maxSamples of its blocks. It belongs to whoever
// got it from NewAsk, until Record or Drop gives it back. Not safe for concurrent use.
type Ask struct {
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
	// EndBlock is the block that ends the hit, and EndGroup the group that lacks it, if that is no full-attention group.
	// Otherwise EndBlock is negative: block Found ends the hit.
	EndBlock, EndGroup int

	account *Account
	asker   string
	kind    recordKind
	place   int   // of recordStored and recordRemoved
	at      int64 // when the ask ended, in monotime

	added   int // hashes
	sampled int // hashes that are sampled: those of whole blocks of the prompt
	first   uint64
	last    uint64
	rate    uint64 // a hash between head and tail is sampled if its selector is below it
	samples []sample
}

// sample is one block of a prompt.
type sample struct {
	block       int // from token 0 on
	fingerprint uint64
}

// All blocks of a prompt of at most maxSamples are sampled; of a longer one the first headSamples, the last tailSamples, and
// up to middleSamples between, chosen by their hashes: prompts that have blocks in common choose the same ones.
const (
	maxSamples    = 256
	headSamples   = 64
	tailSamples   = 64
	middleSamples = maxSamples - headSamples - tailSamples
)

// begin prepares the ask for a number of hashes, of which sampled are of whole blocks of the prompt.
func (a *Ask) begin(sampled int) {
	a.sampled, a.rate = sampled, ^uint64(0)
	// On average three quarters of the places are filled, so that all are filled rarely.
	if between := uint64(max(0, sampled-headSamples-tailSamples)); between > middleSamples {
		a.rate = ^uint64(0) / between * (middleSamples * 3 / 4)
	}
}

// AddHashes samples the next whole hashes of hashLen bytes each. They are borrowed until it returns.
func (a *Ask) AddHashes(hashes []byte, hashLen int) {
	n := len(hashes) / hashLen
	if n == 0 {
		return
	}
	first, end := a.firstBlock(), a.added+n
	for i := a.added; i < min(end, a.sampled); i++ {
		if a.sampled > maxSamples && i >= headSamples && i < a.sampled-tailSamples {
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
func (a *Ask) Fill(hit int64, e coordinator.Ending) {
	a.Answered, a.Hit, a.Found, a.Whole = true, hit, e.Found, e.Found
	if e.Group >= 0 {
		a.EndBlock, a.EndGroup = e.Hash, e.Group
		a.Whole = int(max(hit, a.Start) / a.account.pool.HashBlock)
	}
}

// addMiddle samples hashes between head and tail, the first of a block. A long prompt has a hundred thousand.
func (a *Ask) addMiddle(hashes []byte, hashLen, block int) {
	for at := 0; at < len(hashes) && len(a.samples) < headSamples+middleSamples; at += hashLen {
		if hash := hashes[at : at+hashLen]; selector(hash) < a.rate {
			a.samples = append(a.samples, sample{block + at/hashLen, fingerprint(hash)})
		}
	}
}

// end returns the block that ends the hit.
func (a *Ask) end() int {
	if a.EndBlock >= 0 {
		return a.EndBlock
	}
	return a.Found
}

// firstBlock returns the first block that the ask has a hash of.
func (a *Ask) firstBlock() int { return int(a.Start / a.account.pool.HashBlock) }

const odd = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio: multiplying by it spreads numbers that count up

// selector returns a number by which hashes are chosen, from the last bytes of one.
func selector(hash []byte) uint64 {
	if n := len(hash); n >= 8 {
		return binary.BigEndian.Uint64(hash[n-8:]) * odd
	}
	return fingerprint(hash)
}

// fingerprint returns 64 bits of a hash. Those of engines are uniform already; those of tests and gateways may count up.
// A peer can choose hashes of equal fingerprints, and spoils the account of its own prompts.
func fingerprint(hash []byte) uint64 {
	f := uint64(len(hash))
	for ; len(hash) >= 8; hash = hash[8:] {
		f = (f ^ binary.LittleEndian.Uint64(hash)) * odd
		f ^= f >> 29
	}
	if len(hash) > 0 {
		var rest [8]byte
		copy(rest[:], hash)
		f = (f ^ binary.LittleEndian.Uint64(rest[:])) * odd
		f ^= f >> 29
	}
	f *= odd
	return f ^ f>>32
}
