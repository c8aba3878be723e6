package events

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"github.com/zeebo/xxh3"
)

// The simulation is an engine with a block pool and a publisher, and a network that drops,
// repeats, delays and cuts. A tracker follows it step by step. The engine knows its blocks by
// counting; the tracker knows what was published.

// simKey is a block in its group and tier.
type simKey struct {
	hash   uint64
	group  int
	medium string
}

// simBatch is a batch of an engine: what was published, and what the engine had then.
type simBatch struct {
	incarnation int
	seq         uint64
	payload     []byte
	after       map[simKey]int // copies
}

// simEngine is one run of an engine.
type simEngine struct {
	incarnation int
	batches     []*simBatch // all, also those whose sending failed
	buffer      []*simBatch // of the replay socket
	copies      map[simKey]int
	failedTail  bool // the last batch was not sent
}

// simMode is what an engine does beside storing and removing.
type simMode struct {
	exact       bool // the tracker counts copies of root blocks
	rootCopies  bool
	fullReports bool
	groups      bool // events name a group
	replay      bool
}

func (m simMode) String() string {
	return fmt.Sprintf("exact=%t,root=%t,reports=%t,groups=%t,replay=%t", m.exact, m.rootCopies, m.fullReports, m.groups, m.replay)
}

// exactly reports whether a complete tracker must hold all copies. Otherwise some may be missing,
// and with them blocks whose first removal came.
func (m simMode) exactly() bool { return m.exact || !m.rootCopies }

type simulation struct {
	t      *testing.T
	random *rand.Rand
	mode   simMode
	set    *testSet
	track  *tracker

	engine *simEngine
	byHash map[uint64]*simBatch
	clock  float64

	// The connection.
	up         bool
	dead       bool        // its publisher is gone: what is in flight comes, then the end
	flight     []*simBatch // sent, not delivered
	subscribed int         // batches until the subscription takes effect

	applied *simBatch // the last

	equal, steps, caughtUp, completed int
}

const (
	simHashes = 24 // different block hashes
	simBlocks = 40 // of the pool
	simBuffer = 12 // batches of the replay buffer
)

func newSimulation(t *testing.T, seed uint64, mode simMode) *simulation {
	s := &simulation{t: t, random: rand.New(rand.NewPCG(seed, 7)), mode: mode, set: newTestSet(),
		engine: &simEngine{copies: map[simKey]int{}}, byHash: map[uint64]*simBatch{}, applied: &simBatch{}}
	s.track = newTracker(s.set, s.config())
	return s
}

// config returns that of the tracker.
func (s *simulation) config() *Config {
	cfg := &Config{ExactCopies: s.mode.exact, Observe: func(_ uint64, payload []byte) {
		s.applied = s.byHash[xxh3.Hash(payload)]
		require.NotNil(s.t, s.applied)
	}}
	if s.mode.replay {
		cfg.Replay = "tcp://127.0.0.1:1"
	}
	return cfg
}

func (s *simulation) chance(percent float64) bool { return s.random.Float64()*100 < percent }

// simEvents builds the events of a batch.
type simEvents struct {
	b []byte
	n int
}

func (e *simEvents) event(kind string, fields ...func([]byte) []byte) {
	e.b = msgp.AppendMapHeader(e.b, uint32(1+len(fields)))
	e.b = msgp.AppendString(msgp.AppendString(e.b, "type"), kind)
	for _, f := range fields {
		e.b = f(e.b)
	}
	e.n++
}

func hashesField(hashes ...uint64) func([]byte) []byte {
	return func(b []byte) []byte {
		b = msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), uint32(len(hashes)))
		for _, h := range hashes {
			b = msgp.AppendUint64(b, h)
		}
		return b
	}
}

func parentField(root bool) func([]byte) []byte {
	return func(b []byte) []byte {
		b = msgp.AppendString(b, "parent_block_hash")
		if root {
			return msgp.AppendNil(b)
		}
		return msgp.AppendUint64(b, 99)
	}
}

func mediumField(medium string) func([]byte) []byte {
	return func(b []byte) []byte { return msgp.AppendString(msgp.AppendString(b, "medium"), medium) }
}

func groupField(group int) func([]byte) []byte {
	return func(b []byte) []byte { return msgp.AppendInt(msgp.AppendString(b, "group_idx"), group) }
}

// at returns the fields that say where key is.
func (s *simulation) at(key simKey) []func([]byte) []byte {
	fields := []func([]byte) []byte{mediumField(key.medium)}
	if s.mode.groups {
		fields = append(fields, groupField(key.group))
	}
	return fields
}

// newBatch lets the engine do a few things.
func (s *simulation) newBatch() *simBatch {
	e := s.engine
	var events simEvents
	for range 1 + s.random.IntN(3) {
		s.randomEvent(&events)
	}
	s.clock++
	payload := events.batchAt(s.clock)
	if s.chance(0.1) {
		payload = payload[:len(payload)-1] // not to be decoded
	}
	b := &simBatch{incarnation: e.incarnation, seq: uint64(len(e.batches)), payload: payload, after: maps.Clone(e.copies)}
	s.byHash[xxh3.Hash(b.payload)] = b
	return b
}

// add changes the number of copies of a block.
func (e *simEngine) add(key simKey, by int) {
	if e.copies[key] += by; e.copies[key] == 0 {
		delete(e.copies, key)
	}
}

// randomEvent adds one event and does what it says.
func (s *simulation) randomEvent(events *simEvents) {
	e := s.engine
	key := simKey{hash: 100 + s.random.Uint64N(simHashes), group: NoGroup, medium: "GPU"}
	if s.mode.groups {
		key.group = s.random.IntN(2)
	}
	switch p := s.random.IntN(1000); {
	case p < 5:
		clear(e.copies)
		events.event("AllBlocksCleared")
	case p < 6: // a removal of a later release
		if key, ok := s.held(); ok {
			e.add(key, -1)
			events.event("BlockMoved", hashesField(key.hash))
		}
	case p < 30:
		events.event("BlockStored", hashesField(key.hash), parentField(true), mediumField("cpu"))
	case p < 100 && s.mode.fullReports && e.copies[key] > 0:
		events.event("BlockStored", append(s.at(key), hashesField(key.hash), parentField(true))...)
	case p < 200: // a tier that keeps each block once, and may say so twice
		key.medium = "CPU"
		e.copies[key] = 1
		events.event("BlockStored", append(s.at(key), hashesField(key.hash), parentField(s.chance(50)))...)
	case p < 230: // a removal that says less: from all groups and tiers
		maps.DeleteFunc(e.copies, func(k simKey, _ int) bool { return k.hash == key.hash })
		events.event("BlockRemoved", hashesField(key.hash))
	case p < 600 && len(e.copies) < simBlocks:
		s.storeSome(key, events)
	default:
		if key, ok := s.held(); ok {
			e.add(key, -1)
			events.event("BlockRemoved", append(s.at(key), hashesField(key.hash))...)
		}
	}
}

// storeSome stores one to three blocks, or further copies of them, in one event.
func (s *simulation) storeSome(key simKey, events *simEvents) {
	hashes := []uint64{key.hash}
	for range s.random.IntN(3) {
		if h := 100 + s.random.Uint64N(simHashes); !slices.Contains(hashes, h) {
			hashes = append(hashes, h)
		}
	}
	anyHeld := false
	for _, h := range hashes {
		key.hash = h
		held := s.engine.copies[key] > 0
		anyHeld = anyHeld || held
		if !held || s.mode.groups { // an engine that names no group keeps each block once
			s.engine.add(key, 1)
		}
	}
	root := s.chance(30) && (!anyHeld || s.mode.rootCopies)
	events.event("BlockStored", append(s.at(key), hashesField(hashes...), parentField(root))...)
}

// held returns a random block of the engine.
func (s *simulation) held() (simKey, bool) {
	keys := slices.SortedFunc(maps.Keys(s.engine.copies), func(a, b simKey) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), a.group-b.group, cmp.Compare(a.medium, b.medium))
	})
	if len(keys) == 0 {
		return simKey{}, false
	}
	return keys[s.random.IntN(len(keys))], true
}

// publish makes a batch. Its sending fails at times: then it is nowhere.
func (s *simulation) publish() {
	e := s.engine
	b := s.newBatch()
	e.batches = append(e.batches, b)
	e.failedTail = s.chance(1)
	if e.failedTail {
		return
	}
	e.buffer = append(e.buffer, b)
	if len(e.buffer) > simBuffer {
		e.buffer = e.buffer[1:]
	}
	switch {
	case !s.up || s.dead:
	case s.subscribed > 0:
		s.subscribed--
	case s.chance(2): // lost
	default:
		s.flight = append(s.flight, b)
		if s.chance(1) {
			s.flight = append(s.flight, b)
		}
	}
}

// restart replaces the engine. Behind a proxy the connection stays.
func (s *simulation) restart(proxy bool) {
	s.engine = &simEngine{incarnation: s.engine.incarnation + 1, copies: map[simKey]int{}}
	if !proxy {
		s.dead = true
	}
}

func (s *simulation) connect() {
	s.up, s.dead, s.flight = true, false, nil
	s.subscribed = s.random.IntN(3)
	if s.track.connected() {
		s.check()
		s.replay()
	}
}

func (s *simulation) disconnect() {
	s.up, s.flight = false, nil
	s.track.markStale("cut")
}

// replay asks for a replay, which may fail, and during which the engine goes on.
func (s *simulation) replay() {
	from := s.track.beginReplay()
	s.check()
	answer := slices.Clone(s.engine.buffer)
	for _, b := range answer {
		if b.seq < from {
			continue
		}
		if s.chance(20) {
			s.publish()
		}
		if s.chance(1) {
			s.disconnect()
			return
		}
		if err := s.track.replayed(b.seq, b.payload); err != nil {
			s.check()
			s.disconnect()
			return
		}
		s.check()
	}
	if s.track.endReplay() != nil || s.dead {
		s.check()
		s.disconnect()
	}
}

// deliver passes the next live batch.
func (s *simulation) deliver() {
	b := s.flight[0]
	s.flight = s.flight[1:]
	// What no sequence number can tell: see tracker.
	if s.track.hasLast && s.applied.incarnation != b.incarnation && b.seq == s.track.next {
		return
	}
	needReplay, err := s.track.live(b.seq, b.payload, false)
	s.check()
	if err == nil && needReplay {
		s.replay()
		if !s.up {
			return
		}
		_, err = s.track.live(b.seq, b.payload, true)
		s.check()
	}
	if err != nil {
		s.disconnect()
	}
}

// step does one random thing.
func (s *simulation) step() {
	s.steps++
	switch p := s.random.IntN(1000); {
	case p < 3:
		s.restart(false)
	case p < 5:
		s.restart(true)
	case p < 8 && s.up:
		s.disconnect()
	case p < 12 && s.up && s.mode.replay && !s.dead:
		s.replay()
	case p < 25 && s.up && !s.dead:
		s.catchUp()
	case !s.up:
		if s.chance(30) {
			s.connect()
		} else {
			s.publish()
		}
	case len(s.flight) > 0 && (p < 600 || len(s.flight) > 20):
		s.deliver()
	case s.dead && len(s.flight) == 0:
		s.disconnect()
	default:
		s.publish()
	}
	s.check()
}

// catchUp delivers what is in flight and checks for a lost tail.
func (s *simulation) catchUp() {
	for len(s.flight) > 0 && s.up {
		s.deliver()
	}
	if s.up && s.mode.replay {
		s.replay()
	}
	s.check()
	head := len(s.engine.batches) - 1
	if !s.up || s.dead || s.track.stats.Stale || !s.track.hasLast || len(s.flight) > 0 || s.engine.failedTail ||
		s.applied.incarnation != s.engine.incarnation || s.applied.seq != uint64(head) {
		return
	}
	s.caughtUp++
	if s.track.stats.Complete {
		s.completed++
		if s.mode.exactly() {
			require.Equal(s.t, s.engine.copies, s.holds(), "step %d", s.steps)
		}
	}
}

// holds returns what the tracker holds, with copies.
func (s *simulation) holds() map[simKey]int { return s.holdsOf(s.set, s.track) }

// holdsOf returns what a tracker holds, with copies.
func (s *simulation) holdsOf(set *testSet, track *tracker) map[simKey]int {
	held := make(map[simKey]int)
	for b := range set.Each {
		for _, hash := range b.Hashes.All() {
			key := simKey{hash: uint64(hash[7]), group: b.Group, medium: b.Tier.Medium}
			held[key]++
		}
	}
	for key, n := range track.copies.extra {
		at := track.copies.groupTiers.list[int(key[0])|int(key[1])<<8]
		held[simKey{hash: uint64(key[9]), group: at.Group, medium: at.Tier.Medium}] += int(n)
	}
	return held
}

// check requires that no block is held that the engine did not have, nor more copies; and that
// nothing is missing if the source is complete.
func (s *simulation) check() {
	if s.set.Stale() {
		return
	}
	state, held := s.applied.after, s.holds()
	for key, n := range held {
		if n > state[key] {
			require.Failf(s.t, "too much", "step %d: %v has %d copies, the engine %d, after batch %d (%s)",
				s.steps, key, n, state[key], s.applied.seq, s.track.reason)
		}
	}
	if s.track.stats.Complete && s.track.hasLast && s.mode.exactly() {
		s.equal++
		if !maps.Equal(held, state) {
			require.Equal(s.t, state, held, "step %d, after batch %d (%s)", s.steps, s.applied.seq, s.track.reason)
		}
	}
}

// simSteps is how many steps a simulation makes.
const simSteps = 10_000

// simModes are those that are simulated.
var simModes = []simMode{
	{replay: true, groups: true, fullReports: true},
	{replay: true, groups: true, exact: true, rootCopies: true},
	{replay: true, groups: true, rootCopies: true, fullReports: true},
	{replay: true},
	{groups: true, fullReports: true},
	{groups: true, exact: true, rootCopies: true},
	{groups: true, rootCopies: true, fullReports: true},
	{},
}

// TestSimulation follows engines of all kinds: what is held is never too much, and all of it once
// the source is complete and nothing is in flight.
func TestSimulation(t *testing.T) {
	for _, mode := range simModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(4) {
				s := newSimulation(t, seed, mode)
				for range simSteps / 4 {
					s.step()
				}
				st := s.track.stats
				t.Logf("seed %d: complete at %d checks, caught up %d times and %d complete; %d gaps, %d lost, %d restarts, %d connections",
					seed, s.equal, s.caughtUp, s.completed, st.Gaps, st.Lost, st.Restarts, st.Connects)
				require.Positive(t, s.completed)
				require.True(t, s.equal > 100 || !mode.exactly())
				require.Positive(t, st.Gaps)
				require.Positive(t, st.Lost)
				require.Positive(t, st.Restarts)
			}
		})
	}
}
