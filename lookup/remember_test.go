package lookup

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/oracle"
)

// evictingStore is a store of some blocks of one chain that leases what it finds, as Mooncake does. Its time
// passes only while it is called, and between lookups.
type evictingStore struct {
	lookuptest.KeyStore
	random *rand.Rand
	now    int64 // ns
	lease  backend.Lease
	fails  bool

	generation uint64
	replaced   bool          // by another process, which the next call notices
	hold       chan struct{} // Reset waits for it

	slow    *oracle.Pool
	coord   *coordinator.Coordinator
	numbers map[string]int // of the hashes
	content oracle.Content
	leased  map[block]int64 // until when

	calls  int  // since the last check
	failed bool // one of them
}

// block is one of a chain, on one rank.
type block struct{ group, rank, hash int }

func (s *evictingStore) Lease() backend.Lease { return s.lease }
func (s *evictingStore) Generation() uint64   { return s.generation }
func (s *evictingStore) Failure() error       { return nil }

// blockOf returns the block of a key.
func (s *evictingStore) blockOf(key string) block {
	at, hash, err := parseKey(key)
	if err != nil {
		panic(err)
	}
	for r, rank := range s.coord.Ranks(int(at.Group)) {
		if rank.TP == int(at.TPRank) && rank.PP == int(at.PPRank) && rank.PCP == int(at.PCPRank) {
			return block{s.slow.StoreGroups()[at.Group], r, s.numbers[string(hash)]}
		}
	}
	panic("no such rank: " + key)
}

// Exists takes up to a lease before and after it looks, in which nothing is evicted.
func (s *evictingStore) Exists(_ context.Context, keys backend.Keys, _ bool) ([]int, error) {
	s.calls++
	if s.replaced { // its connection is lost, and the call made again on another
		s.replaced = false
		s.generation++
	}
	if s.fails {
		s.failed = true
		return nil, lookuptest.ErrStore
	}
	s.pass()
	answers := make([]int, keys.Len())
	for i, key := range keys.Strings() {
		b := s.blockOf(key)
		if s.content[b.group][b.rank][b.hash] {
			answers[i] = 1
			s.leased[b] = max(s.leased[b], s.now+int64(s.lease.Duration))
		}
	}
	s.pass()
	return answers, nil
}

// pass lets time pass: mostly a moment.
func (s *evictingStore) pass() {
	if s.random.IntN(8) == 0 {
		s.now += s.random.Int64N(int64(s.lease.Duration))
	}
	s.now += s.random.Int64N(4)
}

// Reset removes all blocks. It does not heed its context.
func (s *evictingStore) Reset(context.Context) error {
	if s.hold != nil {
		<-s.hold
	}
	s.remove(1, func(block) bool { return true })
	return nil
}

// Evict removes blocks, also those that are leased.
func (s *evictingStore) Evict(_ context.Context, keys []string) error {
	for _, key := range keys {
		b := s.blockOf(key)
		s.content[b.group][b.rank][b.hash] = false
	}
	return nil
}

// remove removes blocks, each with a probability.
func (s *evictingStore) remove(p float64, may func(block) bool) {
	for g := range s.content {
		for r := range s.content[g] {
			for i := range s.content[g][r] {
				if b := (block{g, r, i}); may(b) && s.random.Float64() < p {
					s.content[g][r][i] = false
				}
			}
		}
	}
}

// Random pools look up prompts of one chain in a store that leases: it evicts what is not leased, and stores it
// again. Blocks are evicted through one of two services that share it, all are reset, also when nobody waits for that any
// longer, it is replaced by another, fails, and states another lease. What is remembered then makes no difference: each
// answer is the oracle's. Only when others have removed leased blocks, or have started another process at its
// address, it may be the oracle's as it was before: until a call meets the process, and no longer than it is remembered.
func TestRememberedAnswersAgainstTheOracle(t *testing.T) {
	pools := int64(300)
	if lookuptest.Race || testing.Short() {
		pools = 50
	}
	var group sync.WaitGroup
	var seed, remembered, stale atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for n := seed.Add(1); n <= pools && !t.Failed(); n = seed.Add(1) {
				c := newRememberCase(t, uint64(n))
				c.run()
				remembered.Add(c.service.Stat().RememberedLookups)
				stale.Add(c.stale)
			}
		})
	}
	group.Wait()
	t.Logf("%d lookups were answered from memory, %d after others had removed blocks", remembered.Load(), stale.Load())
	require.Greater(t, remembered.Load(), pools)
	require.Greater(t, stale.Load(), pools/10)
}

// rememberCase is one pool with its store.
type rememberCase struct {
	*rand.Rand
	t       *testing.T
	seed    uint64
	slow    oracle.Pool
	hashes  coordinator.Hashes
	list    []string // the same
	store   *evictingStore
	service *Service
	other   *Service // of another pool, with the same keys

	removedAt int64          // when others last removed leased blocks, 0 for never
	before    oracle.Content // what the store had then or has had since
	stale     int64          // answers that were as of before
}

func newRememberCase(t *testing.T, seed uint64) *rememberCase {
	c := &rememberCase{Rand: rand.New(rand.NewPCG(seed, 15)), t: t, seed: seed}
	c.slow = oracle.RandomPool(c.Rand)
	d := differential{t: t, seed: seed, slow: c.slow}
	pool, _ := d.pool()
	coord, err := coordinator.New(pool)
	require.NoError(t, err)
	c.slow.SetRanks(oracleRanks(coord))
	n := oracle.RandomChainLen(c.Rand, &c.slow)
	numbers := map[string]int{}
	var blob []byte
	for i := range n {
		blob = binary.BigEndian.AppendUint64(blob, seed<<16|uint64(i+1))
		c.list = append(c.list, string(blob[i*diffHashLen:]))
		numbers[c.list[i]] = i
	}
	c.hashes = coordinator.NewHashes(blob, diffHashLen)
	c.store = &evictingStore{
		random: c.Rand, now: 1, slow: &c.slow, coord: coord, numbers: numbers,
		content: oracle.RandomContent(c.Rand, &c.slow, n), leased: map[block]int64{},
	}
	c.stateLease()
	cfg := patient
	cfg.BreakerFailures = 1 << 30
	cfg.Remember, cfg.Grouped = time.Duration(c.IntN(3)-1)*50, c.IntN(2) == 0
	shared := NewSharedBackend(c.store, cfg, nil)
	for _, s := range []**Service{&c.service, &c.other} {
		*s, err = NewService(ServiceConfig{Pool: pool, Shared: shared})
		require.NoError(t, err)
	}
	c.service.remote.shared.memory.present.now = func() int64 { return c.store.now }
	return c
}

// stateLease makes the store state another lease.
func (c *rememberCase) stateLease() {
	stated := time.Duration(20 + c.IntN(200))
	c.store.lease.Duration, c.store.lease.Stated = stated, stated
}

func (c *rememberCase) run() {
	for range 60 {
		c.store.now += c.Int64N(20)
		c.step()
		c.lookup()
	}
}

// step changes the store.
func (c *rememberCase) step() {
	s := c.store
	unleased := func(b block) bool { return s.leased[b] <= s.now }
	switch c.IntN(24) {
	case 0, 1, 2:
		s.remove(0.3, unleased)
	case 3:
		s.remove(1, unleased)
	case 4:
		addContent(s.content, oracle.RandomContent(c.Rand, &c.slow, len(c.list)))
	case 9, 10: // prompts are stored whole
		for g := range s.content {
			for r := range s.content[g] {
				s.content[g][r] = slices.Repeat([]bool{true}, len(c.list))
			}
		}
	case 5: // a node dies, or another program removes
		c.removeByForce()
	case 6:
		require.NoError(c.t, c.anyService().Reset(context.Background()))
		c.removedAt = 0
	case 7: // another leader
		c.replace()
		s.generation++
		c.removedAt = 0
	case 11: // another process at the same address
		c.removeByForce()
		c.replace()
		s.replaced = true
	case 12, 13:
		c.evict()
		c.removedAt = 0
	case 14:
		if c.IntN(4) == 0 {
			c.giveUpReset()
		}
	case 8:
		s.fails = true // and has lost some when it answers again
		c.removeByForce()
	}
	if c.removedAt != 0 {
		addContent(c.before, s.content)
	}
}

// replace replaces the store by another one.
func (c *rememberCase) replace() {
	c.store.content, c.store.leased = oracle.RandomContent(c.Rand, &c.slow, len(c.list)), map[block]int64{}
	c.stateLease()
}

func (c *rememberCase) anyService() *Service {
	if c.IntN(2) == 0 {
		return c.other
	}
	return c.service
}

// evict evicts consecutive blocks of a rank.
func (c *rememberCase) evict() {
	if len(c.list) == 0 {
		return
	}
	coord := c.store.coord
	g := c.IntN(coord.NumGroups())
	ranks := coord.Ranks(g)
	rank := ranks[c.IntN(len(ranks))]
	from := c.IntN(len(c.list))
	keys := coordinator.NewHashes(c.hashes.Bytes()[from*diffHashLen:(from+1+c.IntN(len(c.list)-from))*diffHashLen], diffHashLen)
	at := coordinator.GroupRank{Group: uint16(g), TPRank: uint16(rank.TP), PPRank: uint16(rank.PP), PCPRank: uint16(rank.PCP)}
	require.NoError(c.t, c.anyService().Evict(context.Background(), at, keys))
}

// giveUpReset has a reset take effect when nobody waits for it any longer, with a lookup before.
func (c *rememberCase) giveUpReset() {
	c.store.hold = make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.ErrorIs(c.t, c.anyService().Reset(ctx), context.DeadlineExceeded)
	c.removedAt = 0
	c.lookup()
	close(c.store.hold)
	require.Eventually(c.t, func() bool { return c.service.remote.shared.changes.abandoned.Load() == 0 }, lookuptest.Patience, time.Millisecond)
	c.store.hold = nil
}

func (c *rememberCase) removeByForce() {
	if c.removedAt == 0 {
		c.before = cloneContent(c.store.content)
	}
	c.removedAt = c.store.now
	c.store.remove(c.Float64(), func(block) bool { return true })
}

// addContent adds what more has.
func addContent(content, more oracle.Content) {
	for g := range more {
		for r := range more[g] {
			for i, there := range more[g][r] {
				content[g][r][i] = content[g][r][i] || there
			}
		}
	}
}

func cloneContent(content oracle.Content) oracle.Content {
	clone := make(oracle.Content, len(content))
	for g := range content {
		for _, held := range content[g] {
			clone[g] = append(clone[g], append([]bool(nil), held...))
		}
	}
	return clone
}

// lookup compares a lookup with the oracle's.
func (c *rememberCase) lookup() {
	hashes := len(c.list) - c.IntN(1+len(c.list)/8)
	tokens := hashes * c.slow.HashBlockSize
	if c.store.coord.NeedsAligned() {
		tokens -= tokens % c.slow.SchedulerBlockSize
	}
	start := 0
	if c.IntN(2) == 0 {
		start = c.IntN(tokens + 1)
		start -= start % c.slow.SchedulerBlockSize
	}
	s, first := c.store, start/c.slow.HashBlockSize
	s.calls, s.failed = 0, false
	replaced := s.replaced
	rememberFor, began := c.service.remote.shared.memory.rememberFor(), s.now
	view := coordinator.NewHashes(c.hashes.Bytes()[first*diffHashLen:hashes*diffHashLen], diffHashLen).From(int64(start))
	answer, ok := c.service.Backend().LookupRemembered(int64(tokens), view)
	require.Zero(c.t, s.calls)
	hit, err := c.service.Lookup(context.Background(), int64(tokens), view)
	if ok {
		require.NoError(c.t, err)
		require.Equal(c.t, hit, answer.Hit, "seed %d", c.seed)
	}
	want := func(content oracle.Content) (int64, string) {
		hit, _, class := c.slow.LookupTails(start, tokens, c.list[:hashes], content.Has(&c.slow, s.numbers))
		return int64(hit), class
	}
	tokensHit, class := want(s.content)
	s.fails = false
	switch {
	case s.failed:
		require.Zero(c.t, hit.Tokens, "seed %d", c.seed)
		c.removedAt = 0 // all was dropped
	case classOf(err) == class && (err != nil || hit.Tokens == tokensHit):
	case c.removedAt != 0 && began < c.removedAt+rememberFor:
		most, mostClass := want(c.before)
		require.True(c.t, classOf(err) == mostClass || classOf(err) == class, "seed %d: %v", c.seed, err)
		require.LessOrEqual(c.t, hit.Tokens, max(most, tokensHit), "seed %d: more than ever", c.seed)
		c.stale++
		if replaced && !s.replaced { // the lookup has met another process, after it had read what it knew of the one before
			c.removedAt = 0
		}
		return
	default:
		require.Fail(c.t, "another answer than the store's", "seed %d: %d tokens from %d: %d %v, want %d %s; rememberFor %d",
			c.seed, tokens, start, hit.Tokens, err, tokensHit, class, rememberFor)
	}
	if s.now >= c.removedAt+rememberFor || replaced && !s.replaced {
		c.removedAt = 0
	}
}

// A block is remembered for half of the lease that the store states, a quarter in groups, and less only if
// configured.
func TestRememberWindow(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct{ remember, stated, want, grouped time.Duration }{
		{0, 0, 0, 0},
		{0, 10 * s, 5 * s, 2500 * time.Millisecond},
		{-1, 10 * s, 0, 0},
		{-1, 0, 0, 0},
		{3 * s, 0, 3 * s, 3 * s},
		{30 * s, 0, 10 * s, 10 * s},
		{3 * s, 10 * s, 3 * s, 2500 * time.Millisecond},
		{30 * s, 100 * s, 30 * s, 25 * s},
		{7 * s, 10 * s, 5 * s, 2500 * time.Millisecond},
	} {
		require.Equal(t, tc.want, RemoteConfig{Remember: tc.remember}.rememberFor(tc.stated), "%+v", tc)
		require.Equal(t, tc.grouped, RemoteConfig{Remember: tc.remember, Grouped: true}.rememberFor(tc.stated), "%+v", tc)
	}
}

// A time to remember that is too long for the lease which the store states is logged, once. A lookup of remembered blocks
// is counted, and so are the blocks of one that asks for others.
func TestRememberedAnswersAreCounted(t *testing.T) {
	var log bytes.Buffer
	store := &statingStore{}
	store.lease.Store(&backend.Lease{Duration: time.Hour, Stated: time.Hour})
	cfg := patient
	cfg.Remember = time.Hour
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: cfg, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	keys := numberedHashes(1, 100, 8)
	require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, keys))
	lookup := func(n int) {
		hit, err := s.Lookup(t.Context(), int64(16*n), coordinator.NewHashes(keys.Bytes()[:8*n], 8))
		require.NoError(t, err)
		require.Equal(t, int64(16*n), hit.Tokens)
	}
	lookup(90)
	lookup(90)
	lookup(100)
	stat := s.Stat()
	require.EqualValues(t, []int64{1, 100}, []int64{stat.RememberedLookups, stat.BackendKeys})
	require.Equal(t, time.Hour/2, s.Backend().Info().LeaseLeft, "after an answer from memory")
	store.lease.Store(&backend.Lease{Duration: time.Hour, Stated: 2 * time.Hour})
	store.generation.Add(1)
	lookup(100)
	require.EqualValues(t, 200, s.Stat().BackendKeys, "of another generation")
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
	require.Contains(t, log.String(), "configured=1h0m0s remembered=30m0s lease=1h0m0s")
}

// A call that is late begins no epoch.
func TestLateCallsAndRememberedAnswers(t *testing.T) {
	hang, hung := false, 0
	store := &statingStore{KeyStore: lookuptest.KeyStore{Before: func(ctx context.Context, op string, _ []string) error {
		if hang {
			hung++
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}}}
	store.lease.Store(&backend.Lease{Duration: time.Hour, Stated: time.Hour})
	cfg := patient
	cfg.BreakerPause = time.Hour
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: cfg})
	require.NoError(t, err)
	found, other := numberedHashes(1, 4, 8), numberedHashes(9, 4, 8)
	require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, found))
	hit := func() int64 {
		hit, err := s.Lookup(t.Context(), 64, found)
		require.NoError(t, err)
		return hit.Tokens
	}
	late := func() {
		hang = true
		for before := hung; hung == before; { // a late request makes no call
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			_, err := s.Lookup(ctx, 64, other)
			require.NoError(t, err)
			cancel()
		}
		hang = false
	}
	require.EqualValues(t, 64, hit())
	late()
	require.EqualValues(t, 64, hit())
	require.EqualValues(t, 1, s.Stat().RememberedLookups)
	s.remote.shared.health.lastSuccess.Add(-2 * int64(time.Hour)) // nobody is answered
	late()
	require.EqualValues(t, 64, hit())
	require.EqualValues(t, 2, s.Stat().RememberedLookups)
}

// statingStore states a lease.
type statingStore struct {
	lookuptest.KeyStore
	lease      atomic.Pointer[backend.Lease]
	generation atomic.Uint64
	failure    atomic.Pointer[error]
}

func (s *statingStore) Lease() backend.Lease { return *s.lease.Load() }
func (s *statingStore) Generation() uint64   { return s.generation.Load() }

func (s *statingStore) Failure() error {
	if failure := s.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// BenchmarkRememberedLookup asks again for a prompt on 8 ranks that is stored whole.
func BenchmarkRememberedLookup(b *testing.B) {
	const n = 1875
	store := &statingStore{}
	store.lease.Store(&backend.Lease{Duration: time.Hour, Stated: time.Hour})
	s, err := NewService(ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16, TPSize: 8}, Backend: store})
	require.NoError(b, err)
	hashes := numberedHashes(1, n, 32)
	for tp := range 8 {
		require.NoError(b, s.Store(b.Context(), coordinator.GroupRank{TPRank: uint16(tp)}, hashes))
	}
	for b.Loop() {
		hit, err := s.Lookup(b.Context(), 16*n, hashes)
		if err != nil || hit.Tokens == 0 {
			b.Fatal(hit, err)
		}
	}
	require.Equal(b, int64(8*n), s.Stat().BackendKeys)
}
