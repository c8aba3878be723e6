package coordinator

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/oracle"
)

// source turns fuzz bytes into choices. Behind their end every choice is the
// first one.
type source struct {
	data   []byte
	commit string // of the pool, see newAt
}

func (s *source) below(n int) int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b) % n
}

func (s *source) flag() bool { return s.below(2) == 1 }

// pool chooses a configuration that the reference accepts, and the commit whose rules it has.
func (s *source) pool() Pool {
	p := Pool{HashBlockSize: 1 + s.below(4), UseEagle: s.flag()}
	s.commit = []string{"2026-06-20", "2026-08-17"}[s.below(2)]
	if s.commit == "2026-08-17" {
		p.VLLM = "0.27.1"
	}
	common := p.HashBlockSize
	for range 1 + s.below(5) {
		if len(p.Groups) > 0 && s.below(4) == 0 { // a group that shares a spec
			twin := p.Groups[s.below(len(p.Groups))]
			twin.IsEagleGroup = s.below(4) == 1
			p.Groups = append(p.Groups, twin)
			continue
		}
		g := Group{Kind: Kind(s.below(int(CircularBuffer))), BlockSize: p.HashBlockSize * (1 + s.below(4))}
		if g.Kind == RSWA && p.VLLM == "" {
			g.Kind = HiddenState // the release has no rswa
		}
		g.Variant, g.Uniform, g.IsEagleGroup = s.below(2), s.flag(), s.below(4) == 1
		switch {
		case g.Kind.IsWindow():
			g.SlidingWindow = 1 + s.below(8*g.BlockSize)
		case g.Kind == ChunkedLocalAttention:
			g.AttentionChunkSize = 1 + s.below(8*g.BlockSize)
		case g.Kind == Mamba && s.flag():
			g.MambaCacheMode = "align"
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
		c, err := newAt(pool, s.commit)
		if err != nil {
			t.Fatalf("%+v: %v", pool, err)
		}
		q := s.findRequest(c)
		q.maxLength = q.hashes * pool.HashBlockSize
		if s.flag() {
			q.maxLength = s.below(256)*4 + s.below(4) - s.below(16)
		}
		q.applyEagle = !s.flag()
		q.compare(t, c)
	})
}

// findRequest is a call of FindHit.
type findRequest struct {
	hashes     int
	stored     [][]bool // by group and position; nil: everything is
	bits       [][]uint64
	maxLength  int
	applyEagle bool
}

// findRequest chooses what is stored.
func (s *source) findRequest(c *Coordinator) *findRequest {
	q := &findRequest{hashes: s.below(200)}
	everything := s.below(8) == 1
	for g := range c.NumGroups() {
		list := s.chunks(q.hashes / c.KeyStride(g))
		q.stored = append(q.stored, list)
		set := bitsetFrom(list)
		for len(set) > 0 && set[len(set)-1] == 0 && s.flag() {
			set = set[:len(set)-1] // missing words are zero words
		}
		q.bits = append(q.bits, set)
	}
	if everything {
		q.stored = nil
	}
	return q
}

// oracleOf returns the slow twin of a coordinator.
func oracleOf(t *testing.T, c *Coordinator) *oracle.Pool {
	t.Helper()
	pool, err := oracle.PoolOf(c.Pool())
	if err != nil {
		t.Fatal(err)
	}
	return &pool
}

// compare makes the call of the coordinator and of the oracle.
func (q *findRequest) compare(t *testing.T, c *Coordinator) {
	t.Helper()
	var s Scratch
	p := Presence{NumHashes: q.hashes, Everything: q.stored == nil, Bits: q.bits}
	hit, err := c.FindHit(&p, int64(q.maxLength), q.applyEagle, &s)
	var stored func(group, raw int) bool
	if q.stored != nil {
		stored = func(g, raw int) bool {
			stride := c.KeyStride(g)
			return (raw+1)%stride == 0 && q.stored[g][raw/stride]
		}
	}
	wantHit, wantMasks, wantClass := oracleOf(t, c).FindHit(stored, q.hashes, q.maxLength, q.applyEagle)
	describe := func(format string, args ...any) {
		t.Helper()
		t.Errorf("pool %+v\n%+v", c.Pool(), q)
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
		c, err := newAt(pool, s.commit)
		if err != nil {
			t.Fatal(err)
		}
		aligned := (s.below(32) - s.below(3)) * int(c.Alignment())
		start := 0
		if pool.VLLM != "" {
			start = s.below(256) - s.below(32)
		}
		var prompt *int
		promptTokens := int64(NoPrompt)
		if s.flag() {
			n := s.below(256) * (1 + s.below(3))
			prompt, promptTokens = &n, int64(n)
		}
		slow := oracleOf(t, c)
		masks, err := storeMasks(c, int64(aligned), int64(start), promptTokens)
		want, class := slow.StoreMask(aligned, start, prompt)
		compareMasks(t, &pool, masks, err, want, class)
		masks, err = c.LookupMask(int64(aligned))
		want, class = slow.LookupMask(aligned)
		compareMasks(t, &pool, masks, err, want, class)
	})
}

func compareMasks(t *testing.T, pool *Pool, masks []Mask, err error, want []oracle.Mask, class string) {
	t.Helper()
	if errorClass(err) != class {
		t.Fatalf("%+v: error %v, want %q", pool, err, class)
	}
	for g := range want {
		if err == nil {
			compareMask(t, pool, masks[g], want[g])
		}
	}
}

func compareMask(t *testing.T, pool *Pool, m Mask, want oracle.Mask) {
	t.Helper()
	if m.IsAll() != want.All {
		t.Fatalf("%+v: sentinel %v, want %v", pool, m.IsAll(), want.All)
	}
	if m.Len() != int64(len(want.Entries)) {
		t.Fatalf("%+v: %d entries, want %d", pool, m.Len(), len(want.Entries))
	}
	if runs, want := entriesOf(m), conformance.RunsOf(want.Entries); !slices.Equal(runs, want) {
		t.Fatalf("%+v: mask %v, want %v", pool, runs, want)
	}
	for i, real := range want.Entries {
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
	skipUnderRace(t)
	const rounds = 20_000
	for seed := range uint64(rounds) {
		s := &source{data: randomBytes(seed, 200)}
		pool := s.pool()
		c, err := newAt(pool, s.commit)
		if err != nil {
			t.Fatal(err)
		}
		q := s.findRequest(c)
		q.maxLength = max(0, q.hashes*pool.HashBlockSize-s.below(12))
		q.applyEagle = !s.flag()
		q.compare(t, c)
	}
}
