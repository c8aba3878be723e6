//go:build linux

package holders

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/hitline/hitline/bench/workload"
)

// Kinds of queries.
const (
	Hit    = "hit"
	Miss   = "miss"
	Shared = "shared"
)

// Kinds returns them, in the order of the report.
func Kinds() []string { return []string{Hit, Miss, Shared} }

const (
	hashLen = 32 // bytes, as vLLM's sha256 hashes have
	keyLen  = 8  // bytes of a hash in an event: the last ones of the whole hash

	numSystems    = 4
	promptsPer    = 8    // prompts to a prefix
	zipfExponent  = 1.1  // of the prefixes' popularity; must exceed 1
	toHolder      = 0.8  // share of the prompts that go to a holder of their prefix
	pieceBlocks   = 256  // blocks of a prompt that are stored at a time
	outputBlocks  = 32   // of a tail that are generated, and stored one at a time
	sharedPrompts = 2    // of each number of hashes: each costs an entry a holder and block
	streamQueries = 1e18 // seeds of the queries' random numbers begin here
)

// segment is a part of prompts. Its hashes depend on the seed, its id and the block.
type segment struct {
	id     uint64
	blocks int
	holds  []int // who has it
}

// prompt is a request that was stored: a system prompt, a prefix and a tail, or one segment.
type prompt []*segment

// held returns how many of the first blocks a holder has.
func (p prompt) held(holder int) (blocks int) {
	for _, s := range p {
		if !slices.Contains(s.holds, holder) {
			break
		}
		blocks += s.blocks
	}
	return blocks
}

// query is a prompt that misses from a block on; if that is its length, it hits.
type query struct {
	hashes []byte         // of hashLen bytes
	want   map[string]int // blocks, by holder's name; without those that have none
}

// keys returns the short forms.
func (q *query) keys() []uint64 {
	keys := make([]uint64, 0, len(q.hashes)/hashLen)
	for h := q.hashes; len(h) > 0; h = h[hashLen:] {
		keys = append(keys, binary.BigEndian.Uint64(h[hashLen-keyLen:]))
	}
	return keys
}

// chainSet draws the prompts. The same options make the same ones. Not safe for concurrent use.
type chainSet struct {
	o      Options
	random *rand.Rand
	nextID uint64
	apps   []*app

	// Figures of what was stored.
	blocks  int // different ones
	entries int // blocks of each holder
}

// app is what prompts of one length share.
type app struct {
	hashes   int
	systems  []*segment
	prefixes []*segment // prefix i goes on from system prompt i%numSystems
	popular  *rand.Zipf
	prompts  []prompt
}

// store is called with blocks of a holder: their short forms, big-endian, joined; and with that of the
// block before them in their prompt, nil for none. They are borrowed.
type store func(holder int, parent, keys []byte) error

func newWorkload(o Options) *chainSet {
	w := &chainSet{o: o, random: rand.New(rand.NewPCG(o.Seed, 1))}
	for _, hashes := range o.Hashes {
		a := &app{hashes: hashes}
		tail := hashes - hashes/8 - hashes/8*3
		prefixes := max(o.Blocks/len(o.Hashes)/tail/promptsPer, numSystems)
		for range numSystems {
			a.systems = append(a.systems, w.segment(hashes/8))
		}
		for range prefixes {
			a.prefixes = append(a.prefixes, w.segment(hashes/8*3))
		}
		a.popular = rand.NewZipf(w.random, zipfExponent, 1, uint64(prefixes-1))
		w.apps = append(w.apps, a)
	}
	return w
}

// seed decides the hashes.
func (w *chainSet) seed() workload.Seed { return workload.Seed(w.o.Seed) }

func (w *chainSet) segment(blocks int) *segment {
	w.nextID++
	return &segment{id: w.nextID, blocks: blocks}
}

// key returns the short form of a block.
func (w *chainSet) key(s *segment, block int) []byte {
	key := make([]byte, keyLen)
	w.seed().PutHash(key, s.id, block)
	return key
}

// job is a prompt while it is stored.
type job struct {
	holder int
	rest   []*segment
	at     int    // in rest[0]
	output int    // last blocks of the last segment, which are stored one at a time
	parent []byte // the block before, nil for none
}

// piece returns how many blocks are stored next.
func (j *job) piece() int {
	left := j.rest[0].blocks - j.at
	switch {
	case len(j.rest) > 1:
		return min(left, pieceBlocks)
	case left > j.output:
		return min(left-j.output, pieceBlocks)
	}
	return 1
}

// fill draws prompts until there are enough blocks of each length, and stores them.
func (w *chainSet) fill(put store) error {
	for _, a := range w.apps {
		var jobs []*job
		for want := w.blocks + w.o.Blocks/len(w.apps); w.blocks < want || len(jobs) > 0; {
			for w.blocks < want && len(jobs) < w.o.Holders {
				jobs = append(jobs, w.draw(a))
			}
			// A holder's prompts come one after the other: a block before its parent is no event of an engine.
			holder := jobs[w.random.IntN(len(jobs))].holder
			i := slices.IndexFunc(jobs, func(j *job) bool { return j.holder == holder })
			if err := w.storePiece(jobs[i], put); err != nil {
				return err
			}
			if len(jobs[i].rest) == 0 {
				jobs = slices.Delete(jobs, i, i+1)
			}
		}
	}
	return nil
}

// draw returns the next prompt as a job: what its holder has not yet.
func (w *chainSet) draw(a *app) *job {
	number := int(a.popular.Uint64())
	system, prefix := a.systems[number%numSystems], a.prefixes[number]
	holder := w.random.IntN(w.o.Holders)
	if len(prefix.holds) > 0 && w.random.Float64() < toHolder {
		holder = prefix.holds[w.random.IntN(len(prefix.holds))]
	}
	tail := w.segment(a.hashes - system.blocks - prefix.blocks)
	j := &job{holder: holder, output: min(outputBlocks, tail.blocks/2)}
	for _, s := range []*segment{system, prefix, tail} {
		if slices.Contains(s.holds, holder) {
			j.parent = w.key(s, s.blocks-1)
			continue
		}
		if len(s.holds) == 0 {
			w.blocks += s.blocks
		}
		s.holds = append(s.holds, holder)
		j.rest = append(j.rest, s)
	}
	a.prompts = append(a.prompts, prompt{system, prefix, tail})
	return j
}

// storePiece stores the next blocks of a job.
func (w *chainSet) storePiece(j *job, put store) error {
	s := j.rest[0]
	n := j.piece()
	keys := make([]byte, n*keyLen)
	for i := range n {
		w.seed().PutHash(keys[i*keyLen:][:keyLen], s.id, j.at+i)
	}
	parent := j.parent
	j.parent = keys[(n-1)*keyLen:]
	if j.at += n; j.at == s.blocks {
		j.rest, j.at = j.rest[1:], 0
	}
	w.entries += n
	return put(j.holder, parent, keys)
}

// share draws prompts that all holders have, and stores them with one after the other.
func (w *chainSet) share(put store) error {
	for _, a := range w.apps {
		for range sharedPrompts {
			s := w.segment(a.hashes)
			a.prompts = append(a.prompts, prompt{s})
			for holder := range w.o.Holders {
				s.holds = append(s.holds, holder)
				for j := (&job{holder: holder, rest: []*segment{s}}); len(j.rest) > 0; {
					if err := w.storePiece(j, put); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// queries makes those of one kind. share has been called.
func (w *chainSet) queries(a *app, kind string) []query {
	first := len(a.prompts) - sharedPrompts
	from := a.prompts[:first]
	if kind == Shared {
		from = a.prompts[first:]
	}
	order := rand.New(rand.NewPCG(w.o.Seed, streamQueries+uint64(a.hashes))).Perm(len(from))
	list := make([]query, min(w.o.Queries, len(from)))
	for i := range list {
		miss := a.hashes
		if kind == Miss {
			miss = w.random.IntN(a.hashes)
		}
		list[i] = w.query(from[order[i]], a.hashes, miss)
	}
	return list
}

// query makes one of the given number of hashes that misses from a block on.
func (w *chainSet) query(p prompt, hashes, miss int) query {
	q := query{hashes: make([]byte, 0, hashes*hashLen), want: map[string]int{}}
	nowhere := w.segment(hashes)
	for _, s := range p {
		for block := range s.blocks {
			n := len(q.hashes)
			q.hashes = q.hashes[:n+hashLen]
			if at := n / hashLen; at >= miss {
				w.seed().PutHash(q.hashes[n:], nowhere.id, at)
			} else {
				w.seed().PutHash(q.hashes[n:], s.id, block)
			}
		}
	}
	for holder := range w.o.Holders {
		if n := min(p.held(holder), miss); n > 0 {
			q.want[holderName(holder)] = n
		}
	}
	return q
}
