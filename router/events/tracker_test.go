package events

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
)

// script drives a tracker by hand.
type script struct {
	*testing.T
	*tracker
	set *testSet
}

func newScript(t *testing.T, replay bool) *script {
	cfg := &Config{MaxBlocks: DefaultMaxBlocks}
	if replay {
		cfg.Replay = "tcp://127.0.0.1:1"
	}
	set := newTestSet()
	return &script{t, newTracker(set, cfg), set}
}

// ok passes a live batch that is applied or skipped.
func (s *script) ok(seq uint64, payload []byte) {
	s.Helper()
	v, err := s.live(seq, payload, false)
	require.NoError(s, err)
	require.False(s, v)
}

// gap passes a live batch that wants a replay.
func (s *script) gap(seq uint64, payload []byte) {
	s.Helper()
	v, err := s.live(seq, payload, false)
	require.NoError(s, err)
	require.True(s, v)
	require.True(s, s.set.Stale())
}

// replayOf makes a replay of batches from first on.
func (s *script) replayOf(from, first uint64, payloads ...[]byte) error {
	s.Helper()
	require.Equal(s, from, s.beginReplay())
	for i, p := range payloads {
		if err := s.replayed(first+uint64(i), p); err != nil {
			return err
		}
	}
	return s.endReplay()
}

func (s *script) holds(complete bool, hashes ...uint64) {
	s.Helper()
	require.False(s, s.set.Stale())
	require.Equal(s, hashes, numbers(s.set))
	require.Equal(s, complete, s.stats.Complete)
}

func TestTrackerReplayAtConnect(t *testing.T) {
	a, b, c, d := storedBatch(1), storedBatch(2), storedBatch(3), storedBatch(4)

	s := newScript(t, true)
	require.True(t, s.connected())
	require.True(t, s.set.Stale())
	require.NoError(t, s.replayOf(0, 0))
	s.holds(true)

	s = newScript(t, true)
	s.connected()
	require.NoError(t, s.replayOf(0, 0, a, b))
	s.ok(0, a) // brought by the replay
	s.ok(1, b)
	s.ok(2, c)
	s.holds(true, 1, 2, 3)
	s.markStale("cut")
	require.True(t, s.set.Stale())

	s.connected()
	require.NoError(t, s.replayOf(2, 2, c, d))
	s.holds(true, 1, 2, 3, 4)
	require.Zero(t, s.stats.Lost+s.stats.Restarts+s.stats.Gaps)

	s = newScript(t, true)
	s.connected()
	require.NoError(t, s.replayOf(0, 5, a, b))
	s.holds(false, 1, 2)
	require.Zero(t, s.stats.Lost, "nothing was held")
}

func TestTrackerOtherPublisher(t *testing.T) {
	a, b, other := storedBatch(1), storedBatch(2), storedBatch(9)
	for name, test := range map[string]struct {
		first    uint64
		payloads [][]byte
		restart  bool
	}{
		"another batch of this number": {1, [][]byte{other}, true},
		"no such batch":                {0, nil, true},
		"rotated":                      {2, [][]byte{other}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, true)
			s.connected()
			require.NoError(t, s.replayOf(0, 0, a, b))
			s.markStale("cut")
			s.connected()
			require.ErrorIs(t, s.replayOf(1, test.first, test.payloads...), errOtherPublisher)
			require.True(t, s.set.Stale())
			require.Zero(t, s.set.Len())
			require.Equal(t, test.restart, s.stats.Restarts == 1)
			require.Equal(t, test.restart, s.stats.Lost == 0)
			s.markStale("other")
			s.connected()
			require.NoError(t, s.replayOf(0, 0, other))
			s.holds(true, 9)
		})
	}
}

// A publisher that has said nothing is complete, until its buffer turns out to begin later.
func TestTrackerBufferBeginsLater(t *testing.T) {
	a, b := storedBatch(1), storedBatch(2)
	s := newScript(t, true)
	s.connected()
	require.NoError(t, s.replayOf(0, 0))
	s.holds(true)
	s.gap(6, b)
	require.NoError(t, s.replayOf(0, 5, a, b))
	s.holds(false, 1, 2)
}

// Batches of an earlier publisher are not compared with those of a later one.
func TestTrackerForgetsEarlierBatches(t *testing.T) {
	s := newScript(t, true)
	s.connected()
	require.NoError(t, s.replayOf(0, 0, storedBatch(1), storedBatch(2), storedBatch(3)))
	s.markStale("cut")
	s.connected()
	require.ErrorIs(t, s.replayOf(2, 2), errOtherPublisher)
	s.connected()
	require.NoError(t, s.replayOf(0, 2, storedBatch(4)))
	s.ok(1, storedBatch(5)) // a live batch before those of the replay
	s.holds(false, 4)
	require.EqualValues(t, 1, s.stats.Restarts)
}

func TestTrackerGaps(t *testing.T) {
	a, b, c, d := storedBatch(1), storedBatch(2), storedBatch(3), storedBatch(4)
	s := newScript(t, true)
	s.connected()
	require.NoError(t, s.replayOf(0, 0, a))
	s.gap(3, d)
	require.NoError(t, s.replayOf(0, 0, a, b, c))
	v, err := s.live(3, d, true)
	require.NoError(t, err)
	require.False(t, v)
	s.holds(true, 1, 2, 3, 4)
	require.EqualValues(t, 1, s.stats.Gaps)

	// The replay does not help.
	s.gap(7, b)
	require.NoError(t, s.replayOf(3, 3, d))
	_, err = s.live(7, b, true)
	require.NoError(t, err)
	s.holds(false, 2)
	require.Equal(t, [2]int64{2, 1}, [2]int64{s.stats.Gaps, s.stats.Lost})

	// A number is missing in the replay.
	require.Equal(t, uint64(7), s.beginReplay())
	require.NoError(t, s.replayed(7, b))
	require.NoError(t, s.replayed(9, c))
	require.NoError(t, s.endReplay())
	s.holds(false, 3)
	require.EqualValues(t, 2, s.stats.Lost)

	s.ok(10, batchOf("AllBlocksCleared"))
	s.ok(11, a)
	s.holds(true, 1)
}

func TestTrackerNumbersGoBack(t *testing.T) {
	a, b, c := storedBatch(1), storedBatch(2), storedBatch(3)
	for _, replay := range []bool{true, false} {
		s := newScript(t, replay)
		if s.connected() {
			require.NoError(t, s.replayOf(0, 0))
		}
		s.ok(0, a)
		s.ok(1, b)
		s.ok(1, b)
		s.ok(0, a) // equal: it came twice
		s.holds(true, 1, 2)
		s.ok(0, c)
		s.holds(true, 3)
		require.EqualValues(t, 1, s.stats.Restarts)
		s.ok(1, a)
		if replay {
			s.gap(1, b)
			require.NoError(t, s.replayOf(0, 0, c, b))
			_, err := s.live(1, b, true)
			require.NoError(t, err)
			s.holds(true, 3, 2)
		} else {
			s.ok(1, b)
			s.holds(false, 2)
		}
		require.EqualValues(t, 2, s.stats.Restarts)
	}

	// Too long ago to compare.
	s := newScript(t, false)
	s.connected()
	for seq := range uint64(numRecent + 1) {
		s.ok(seq, storedBatch(seq))
	}
	s.ok(1, storedBatch(1))
	s.holds(false, 1)
}

func TestTrackerWithoutReplay(t *testing.T) {
	a, b, c := storedBatch(1), storedBatch(2), storedBatch(3)
	s := newScript(t, false)
	require.False(t, s.connected())
	s.holds(false)
	s.ok(4, a)
	s.ok(5, b)
	s.holds(false, 1, 2)
	s.ok(7, c)
	s.holds(false, 3)
	require.Equal(t, [2]int64{1, 1}, [2]int64{s.stats.Gaps, s.stats.Lost})
	s.markStale("cut")
	require.True(t, s.set.Stale())
	s.connected()
	s.holds(false)
	require.EqualValues(t, 2, s.stats.Lost)
	s.ok(0, a)
	s.holds(true, 1)
}

func TestTrackerBadBatches(t *testing.T) {
	a, b := storedBatch(1), storedBatch(2)
	s := newScript(t, true)
	s.connected()
	require.NoError(t, s.replayOf(0, 0, a))
	bad := append(storedBatch(2, 3), 0xc1)
	_, err := s.live(1, bad, false)
	require.ErrorIs(t, err, ErrPayload)
	require.Zero(t, s.set.Len())
	s.markStale("bad")
	s.connected()
	require.NoError(t, s.replayOf(1, 1, bad, b), "the bad one is the last that came")
	s.holds(false, 2)

	s.ok(3, batchOf("BlockMoved", hashesField(2)))
	s.holds(false)
	require.Equal(t, [2]int64{2, 1}, [2]int64{s.stats.Lost, s.stats.Unknown})

	_, err = s.live(endOfReplay, a, false)
	require.ErrorIs(t, err, errSequence)
	s.beginReplay()
	require.ErrorIs(t, s.replayed(endOfReplay, a), errSequence)
	s = newScript(t, true)
	s.connected()
	s.beginReplay()
	require.NoError(t, s.replayed(5, a))
	require.ErrorIs(t, s.replayed(4, b), errSequence)
}

func TestTrackerCopies(t *testing.T) {
	for _, exact := range []bool{false, true} {
		s := newScript(t, false)
		s.exactCopies = exact
		s.connected()
		seq := uint64(0)
		apply := func(payload []byte) { s.ok(seq, payload); seq++ }
		apply(gpuEvent(true, 1, 2))
		apply(gpuEvent(false, 2, 3)) // a copy of 2
		apply(gpuEvent(true, 1))     // a full report, or a copy
		s.holds(true, 1, 2, 3)
		apply(removedBatch(1, 2, 3))
		if exact {
			s.holds(true, 1, 2)
			apply(removedBatch(1))
		}
		s.holds(true, 2)
		apply(removedBatch(2))
		s.holds(true)
		require.Empty(t, s.copies.extra)

		// A removal that says less removes all copies.
		apply(gpuEvent(false, 5, 5, 5))
		require.Equal(t, 1, s.set.Len())
		apply(batchOf("BlockRemoved", hashesField(5), mediumField("GPU")))
		s.holds(true)
		require.Empty(t, s.copies.extra)
		apply(gpuEvent(false, 5))
		apply(removedBatch(5))
		s.holds(true)
	}

	// No group: an engine that says each block once.
	s := newScript(t, false)
	s.connected()
	one := func() []byte { return batchOf("BlockStored", hashesField(1), parentField(false), mediumField("GPU")) }
	s.ok(0, one())
	s.ok(1, one())
	s.ok(2, batchOf("BlockRemoved", hashesField(1), mediumField("GPU")))
	s.holds(true)

	// Unheld are counted, not held.
	s.ok(3, batchOf("BlockStored", hashesField(1, 2), parentField(true), mediumField("cpu")))
	s.holds(true)
	require.EqualValues(t, 2, s.stats.Unheld)

	// More copies than are counted: too little is held, never too much.
	c := new(copies)
	require.NoError(t, c.addGroupTier(0, &gpu))
	for i := range uint64(maxCopied + 10) {
		c.add(0, &gpu, joined(8, i).At(0))
	}
	require.Len(t, c.extra, maxCopied)
	require.True(t, c.remove(0, &gpu, joined(8, 0).At(0)))
	require.False(t, c.remove(0, &gpu, joined(8, maxCopied+5).At(0)))
}

// The removals of a batch take effect before a later event of it.
func TestTrackerKeepsTheOrderOfABatch(t *testing.T) {
	s := newScript(t, false)
	s.connected()
	var events simEvents
	at := []func([]byte) []byte{mediumField("GPU"), groupField(0)}
	events.event("BlockStored", append(at, hashesField(1, 2, 3), parentField(false))...)
	events.event("BlockRemoved", append(at, hashesField(1))...)
	events.event("BlockRemoved", append(at, hashesField(2))...)
	events.event("BlockRemoved", hashesField(3))
	events.event("BlockStored", append(at, hashesField(2, 4), parentField(false))...)
	events.event("BlockRemoved", append(at, hashesField(4))...)
	s.ok(0, events.batch())
	s.holds(true, 2)
	require.Empty(t, s.copies.extra)

	events = simEvents{}
	events.event("BlockRemoved", append(at, hashesField(2))...)
	events.event("AllBlocksCleared")
	events.event("BlockStored", append(at, hashesField(2), parentField(false))...)
	s.ok(1, events.batch())
	s.holds(true, 2)
}

// A long event reaches the Holder in parts that follow each other.
func TestTrackerSplitsLongEvents(t *testing.T) {
	n := 2*maxApply + 5
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = uint64(i)
	}
	h := &recordingHolder{testSet: newTestSet()}
	tr := newTracker(h, &Config{})
	tr.connected()
	_, err := tr.live(0, gpuEvent(false, hashes...), false)
	require.NoError(t, err)
	require.Equal(t, []int{maxApply, maxApply, 5}, h.lengths)
	require.Equal(t, [][]byte{joined(8, 99).At(0), joined(8, maxApply-1).At(0), joined(8, 2*maxApply-1).At(0)}, h.parents)
	require.Equal(t, hashes, numbers(h.testSet))
	_, err = tr.live(1, gpuEvent(false, 7), false)
	require.NoError(t, err)
	_, err = tr.live(2, removedBatch(hashes...), false)
	require.NoError(t, err)
	require.Equal(t, []uint64{7}, numbers(h.testSet), "it has another copy")
}

type recordingHolder struct {
	*testSet
	lengths []int
	parents [][]byte
}

func (h *recordingHolder) Store(b *Blocks, held []bool) error {
	h.lengths = append(h.lengths, b.Hashes.Len())
	h.parents = append(h.parents, append([]byte(nil), b.Parent...))
	return h.testSet.Store(b, held)
}

// Only the GPU has copies: what a connector stores twice goes with its first removal.
func TestTrackerCountsCopiesOfTheGPUAlone(t *testing.T) {
	s := newScript(t, false)
	s.connected()
	at := func(fields ...func([]byte) []byte) []func([]byte) []byte {
		return append([]func([]byte) []byte{mediumField("CPU"), groupField(0), hashesField(1)}, fields...)
	}
	s.ok(0, batchOf("BlockStored", at(parentField(false))...))
	s.ok(1, batchOf("BlockStored", at(parentField(false))...))
	s.holds(true, 1)
	s.ok(2, batchOf("BlockRemoved", at()...))
	s.holds(true)
}

// Blocks of tiers that no event removes are not held.
func TestTrackerUnheld(t *testing.T) {
	for tier, unheld := range map[Tier]bool{
		{Medium: "GPU"}: false, {Medium: "CPU"}: false, {Medium: "CPU_PINNED"}: false, {}: false,
		{Medium: "CPU", Locality: "LOCAL"}:      false,
		{Medium: "cpu"}:                         true,
		{Medium: "cuda:0"}:                      true,
		{Medium: "STORAGE"}:                     true,
		{Medium: "STORAGE", Locality: "LOCAL"}:  true,
		{Medium: "STORAGE", Locality: "REMOTE"}: true,
		{Medium: "STORAGE", Ownership: "kvcr"}:  false,
		{Medium: "FS"}:                          true,
		{Medium: "OBJ"}:                         true,
	} {
		s := newScript(t, false)
		s.connected()
		fields := []func([]byte) []byte{mediumField(tier.Medium), groupField(0), hashesField(1, 2), parentField(false)}
		for key, value := range map[string]string{"locality": tier.Locality, "ownership": tier.Ownership} {
			if value != "" {
				fields = append(fields, func(b []byte) []byte { return msgp.AppendString(msgp.AppendString(b, key), value) })
			}
		}
		s.ok(0, batchOf("BlockStored", fields...))
		if unheld {
			s.holds(true)
			require.EqualValues(t, 2, s.stats.Unheld, tier)
		} else {
			s.holds(true, 1, 2)
			require.Zero(t, s.stats.Unheld, tier)
		}
	}
}

// A removal that may mean two tiers removes from both, also if only one of them has copies.
func TestTrackerRemovesFromAllTiersThatMayBeMeant(t *testing.T) {
	s := newScript(t, false)
	s.connected()
	local := func(b []byte) []byte { return msgp.AppendString(msgp.AppendString(b, "locality"), "LOCAL") }
	at := []func([]byte) []byte{mediumField("GPU"), groupField(0), hashesField(1)}
	s.ok(0, batchOf("BlockStored", append(at, parentField(false))...))
	s.ok(1, batchOf("BlockStored", append(at, parentField(false), local)...))
	s.ok(2, batchOf("BlockStored", append(at, parentField(false), local)...))
	s.holds(true, 1, 1)
	s.ok(3, batchOf("BlockRemoved", at...))
	s.holds(true)
}

// ofRank returns a batch of a data-parallel rank.
func ofRank(rank byte, payload []byte) []byte {
	payload[len(payload)-1] = rank // one byte, the last
	return payload
}

// Several data-parallel ranks behind one endpoint: their numbers may look like one sequence.
func TestTrackerRefusesOtherRanks(t *testing.T) {
	s := newScript(t, false)
	s.connected()
	s.ok(0, ofRank(0, storedBatch(1)))
	s.ok(0, ofRank(1, storedBatch(2))) // as after a restart
	s.holds(true, 2)
	_, err := s.live(1, ofRank(0, storedBatch(3)), false)
	require.ErrorIs(t, err, errRank)
	require.ErrorContains(t, err, "1 and 0")
	require.Zero(t, s.set.Len())
	require.False(t, s.stats.Complete)

	// The replay socket of another rank.
	s = newScript(t, true)
	s.connected()
	require.NoError(t, s.replayOf(0, 0, ofRank(1, storedBatch(1))))
	_, err = s.live(1, ofRank(0, storedBatch(2)), false)
	require.ErrorIs(t, err, errRank)
	require.Zero(t, s.set.Len())
}

// A replay socket that does not know the live batches is an error: the source must not stay stale
// until the next replay, which a busy publisher puts off for ever.
func TestTrackerLiveIsNotOfTheReplay(t *testing.T) {
	a, b, other := storedBatch(1), storedBatch(2), storedBatch(9)
	s := newScript(t, true)
	s.connected()
	require.NoError(t, s.replayOf(0, 0, a, b))
	s.gap(1, other)
	require.NoError(t, s.replayOf(0, 0, a, b))
	_, err := s.live(1, other, true)
	require.ErrorIs(t, err, errReplayOther)
	require.True(t, s.set.Stale())
	require.Zero(t, s.set.Len())
}
