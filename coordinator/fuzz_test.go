package coordinator

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hitline/hitline/internal/conformance"
)

// source turns fuzz bytes into choices. Behind their end every choice is the
// first one.
type source struct{ data []byte }

func (s *source) below(n int) int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b) % n
}

func (s *source) flag() bool { return s.below(2) == 1 }

// pool chooses a configuration that the reference accepts.
func (s *source) pool() Pool {
	p := Pool{HashBlockSize: 1 + s.below(4), UseEagle: s.flag()}
	common := p.HashBlockSize
	for range 1 + s.below(5) {
		if len(p.Groups) > 0 && s.below(4) == 0 { // a group that shares a spec
			twin := p.Groups[s.below(len(p.Groups))]
			twin.IsEagleGroup = s.below(4) == 1
			p.Groups = append(p.Groups, twin)
			continue
		}
		g := Group{Kind: Kind(s.below(len(kindNames))), BlockSize: p.HashBlockSize * (1 + s.below(4))}
		g.Variant, g.Uniform, g.IsEagleGroup = s.below(2), s.flag(), s.below(4) == 1
		switch {
		case g.Kind.window():
			g.SlidingWindow = 1 + s.below(8*g.BlockSize)
		case g.Kind == ChunkedLocalAttention:
			g.AttentionChunkSize = 1 + s.below(8*g.BlockSize)
		}
		common = common / int(gcd(int64(common), int64(g.BlockSize))) * g.BlockSize
		p.Groups = append(p.Groups, g)
	}
	p.SchedulerBlockSize = common * (1 + s.below(2))
	return p
}

// chunks chooses which of n chunks are stored: by patterns, because single bits
// of fuzz data hardly ever make long runs.
func (s *source) chunks(n int) []bool {
	list := make([]bool, n)
	pattern, start, period := s.below(5), s.below(256), 1+s.below(9)
	noise := rand.New(rand.NewPCG(uint64(start), uint64(period)))
	for i := range list {
		switch pattern {
		case 0:
			list[i] = true
		case 1: // a prefix
			list[i] = i < start
		case 2: // holes at regular places
			list[i] = (i+start)%period != 0
		case 3: // nearly all
			list[i] = noise.IntN(20) != 0
		case 4: // runs
			list[i] = i > 0 && list[i-1] != (noise.IntN(2+period) == 0)
		}
	}
	for range s.below(4) { // and a few exact changes
		if n > 0 {
			i := s.below(n)
			list[i] = !list[i]
		}
	}
	return list
}

func bitsetFrom(list []bool) []uint64 {
	set := make([]uint64, (len(list)+63)/64)
	for i, stored := range list {
		if stored {
			set[i/64] |= 1 << (i % 64)
		}
	}
	return set
}

func FuzzFindHit(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(randomBytes(seed, 120))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &source{data: data}
		pool := s.pool()
		c, err := New(pool)
		if err != nil {
			t.Fatalf("%+v: %v", pool, err)
		}
		o := oracle{pool: c.Pool(), hashes: s.below(200)}
		p := Presence{NumHashes: o.hashes, Everything: s.below(8) == 1}
		for g := range pool.Groups {
			list := s.chunks(o.hashes / c.Stride(g))
			o.present = append(o.present, list)
			set := bitsetFrom(list)
			for len(set) > 0 && set[len(set)-1] == 0 && s.flag() {
				set = set[:len(set)-1] // missing words are zero words
			}
			p.Bits = append(p.Bits, set)
		}
		if p.Everything {
			o.present = nil
		}
		maxLength := o.hashes * pool.HashBlockSize
		if s.flag() {
			maxLength = s.below(256)*4 + s.below(4)
		}
		applyEagle := !s.flag()
		compareFindHit(t, c, &o, &p, maxLength, applyEagle)
	})
}

func compareFindHit(t *testing.T, c *Coordinator, o *oracle, p *Presence, maxLength int, applyEagle bool) {
	t.Helper()
	var s Scratch
	hit, err := c.FindHit(p, int64(maxLength), applyEagle, &s)
	wantHit, wantMasks, wantClass := o.findHit(maxLength, applyEagle)
	describe := func(format string, args ...any) {
		t.Helper()
		t.Errorf("pool %+v\nhashes %d, max length %d, apply eagle %v, everything %v\npresent %v",
			o.pool, o.hashes, maxLength, applyEagle, p.Everything, o.present)
		t.Fatalf(format, args...)
	}
	if class := errorClass(err); class != wantClass {
		describe("error %q (%v), want %q", class, err, wantClass)
	}
	if err != nil {
		return
	}
	if hit != int64(wantHit) {
		describe("hit %d, want %d", hit, wantHit)
	}
	for g, want := range wantMasks {
		if got, want := runsOf(s.Mask(g)), conformance.RunsOf(want); !slices.Equal(got, want) {
			describe("mask %d is %v, want %v", g, got, want)
		}
	}
}

func FuzzMasks(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(randomBytes(seed, 60))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &source{data: data}
		pool := s.pool()
		if s.below(3) != 0 {
			interval := s.below(256)
			pool.RetentionInterval = &interval
		}
		c, err := New(pool)
		if err != nil {
			t.Fatal(err)
		}
		o := oracle{pool: c.Pool()}
		aligned := s.below(32) * pool.SchedulerBlockSize
		var prompt *int
		promptTokens := int64(NoPrompt)
		if s.flag() {
			n := s.below(256) * (1 + s.below(3))
			prompt, promptTokens = &n, int64(n)
		}
		store, err := c.StoreMask(int64(aligned), 0, promptTokens)
		if err != nil {
			t.Fatal(err)
		}
		lookup, err := c.LookupMask(int64(aligned))
		if err != nil {
			t.Fatal(err)
		}
		for g := range pool.Groups {
			want, all := o.kept(g, aligned, pool.RetentionInterval, prompt)
			compareMask(t, &pool, store[g], want, all)
			want, all = o.kept(g, aligned, nil, nil)
			compareMask(t, &pool, lookup[g], want, all)
		}
	})
}

func compareMask(t *testing.T, pool *Pool, m Mask, want []bool, all bool) {
	t.Helper()
	if m.IsAll() != all {
		t.Fatalf("%+v: sentinel %v, want %v", pool, m.IsAll(), all)
	}
	if all {
		return
	}
	if got, want := runsOf(m), conformance.RunsOf(want); !slices.Equal(got, want) {
		t.Fatalf("%+v: mask %v, want %v", pool, got, want)
	}
	for i, real := range want {
		if m.At(int64(i)) != real {
			t.Fatalf("%+v: entry %d is %v", pool, i, !real)
		}
	}
}

func randomBytes(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return data
}

// A plain test run compares this many random requests without the fuzzer.
func TestFindHitAgainstOracle(t *testing.T) {
	const rounds = 20_000
	for seed := range uint64(rounds) {
		s := &source{data: randomBytes(seed, 200)}
		pool := s.pool()
		c, err := New(pool)
		if err != nil {
			t.Fatal(err)
		}
		o := oracle{pool: c.Pool(), hashes: s.below(200)}
		p := Presence{NumHashes: o.hashes}
		for g := range pool.Groups {
			list := s.chunks(o.hashes / c.Stride(g))
			o.present = append(o.present, list)
			p.Bits = append(p.Bits, bitsetFrom(list))
		}
		maxLength := o.hashes * pool.HashBlockSize
		compareFindHit(t, c, &o, &p, max(0, maxLength-s.below(12)), !s.flag())
	}
}
