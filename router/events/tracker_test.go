package events

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// script drives a tracker by hand.
type script struct {
	*testing.T
	*tracker
	set *testSet
}

func newScript(t *testing.T, replay bool) *script {
	cfg := new(Config)
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

// okAfterReplay passes a live batch again, after a replay.
func (s *script) okAfterReplay(seq uint64, payload []byte) {
	s.Helper()
	_, err := s.live(seq, payload, true)
	require.NoError(s, err)
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

// What a replay shows of the publisher that follows the one of batches 0 and 1.
func TestTrackerAfterReconnect(t *testing.T) {
	a, b, other := storedBatch(1), storedBatch(2), storedBatch(9)
	for name, test := range map[string]struct {
		first    uint64
		payloads [][]byte
		same     bool
		restarts int64
		lost     int64
	}{
		"the same":                     {first: 1, payloads: [][]byte{b, other}, same: true},
		"another batch of this number": {first: 1, payloads: [][]byte{other}, restarts: 1},
		"no such batch":                {restarts: 1},
		"rotated":                      {first: 2, payloads: [][]byte{other}, lost: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, true)
			require.True(t, s.connected())
			require.True(t, s.set.Stale())
			require.NoError(t, s.replayOf(0, 0, a, b))
			s.ok(0, a) // brought by the replay
			s.ok(1, b)
			s.holds(true, 1, 2)
			s.markStale("cut")
			s.connected()
			err := s.replayOf(1, test.first, test.payloads...)
			if test.same {
				require.NoError(t, err)
				s.holds(true, 1, 2, 9)
			} else {
				require.ErrorIs(t, err, errOtherPublisher)
				require.True(t, s.set.Stale())
				require.Zero(t, s.set.Len())
				s.connected()
				require.NoError(t, s.replayOf(0, 2, other))
				s.ok(1, storedBatch(5)) // it is not compared with batch 1 of the earlier publisher
				s.holds(false, 9)
			}
			require.Equal(t, [2]int64{test.restarts, test.lost}, [2]int64{s.stats.Restarts, s.stats.Lost})
		})
	}
}

func TestTrackerGaps(t *testing.T) {
	a, b, c, d := storedBatch(1), storedBatch(2), storedBatch(3), storedBatch(4)
	s := newScript(t, true)
	s.connected()
	require.NoError(t, s.replayOf(0, 0))
	s.holds(true)
	s.gap(6, b) // the buffer turns out to begin later
	require.NoError(t, s.replayOf(0, 5, a, b))
	s.holds(false, 1, 2)

	s.gap(8, d)
	require.NoError(t, s.replayOf(6, 6, b, c))
	s.okAfterReplay(8, d)
	s.holds(false, 1, 2, 3, 4)
	require.Equal(t, [2]int64{2, 0}, [2]int64{s.stats.Gaps, s.stats.Lost})

	s.gap(12, b) // the replay does not help
	require.NoError(t, s.replayOf(8, 8, d))
	s.okAfterReplay(12, b)
	s.holds(false, 2)
	require.Equal(t, [2]int64{3, 1}, [2]int64{s.stats.Gaps, s.stats.Lost})

	require.Equal(t, uint64(12), s.beginReplay()) // a number is missing in the replay
	require.NoError(t, s.replayed(12, b))
	require.NoError(t, s.replayed(14, c))
	require.NoError(t, s.endReplay())
	s.holds(false, 3)
	require.EqualValues(t, 2, s.stats.Lost)

	s.ok(15, batchOf("AllBlocksCleared"))
	s.ok(16, a)
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
			s.okAfterReplay(1, b)
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
	require.Contains(t, s.stats.LastError, "the connection was lost, and there is no replay socket")
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
	require.Contains(t, s.stats.LastError, "an event of an unknown type")

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

// What the Holder dropped is the reason of a live source, also if it did so before. That of a stale or a lost one stays.
func TestTrackerReasonOfDropped(t *testing.T) {
	s := newScript(t, true)
	s.connected()
	first := storedBatch(1)
	require.NoError(t, s.replayOf(0, 0, first))
	s.gap(3, storedBatch(4))
	s.set.report(5, nil)
	s.status()
	require.Equal(t, "batch 3 came, not 1", s.reason)
	require.NoError(t, s.replayOf(0, 0, first, storedBatch(2), storedBatch(3)))
	s.status()
	require.Contains(t, s.reason, "max_bytes is used")
	require.False(t, s.stats.Complete)
	s.set.report(6, nil)
	s.lose("lost")
	s.status()
	require.Equal(t, "lost", s.reason)
}

// A clear of one tier removes what is held there, with the copies, and leaves the source complete.
func TestTrackerTierCleared(t *testing.T) {
	s := newScript(t, false)
	s.connected()
	s.ok(0, gpuEvent(true, 1, 2))
	s.ok(1, batchOf("TierBlocksCleared", mediumField("GPU")))
	s.holds(true)
	cpu := Tier{Medium: "CPU"}
	s.ok(2, gpuEvent(true, 3, 4))
	s.ok(3, gpuEvent(false, 3)) // a copy
	s.ok(4, batchOf("BlockStored", hashesField(4), mediumField("CPU"), groupField(0), parentField(true)))
	s.ok(5, batchOf("TierBlocksCleared", mediumField("gpu")))
	s.holds(true, 4)
	require.True(t, s.set.Contains(0, cpu, joined(8, 4).At(0)))
	s.ok(6, gpuEvent(true, 3))
	s.ok(7, removedBatch(3))
	s.holds(true, 4)
	require.EqualValues(t, 2, s.stats.Cleared)
	require.Zero(t, s.stats.Unknown+s.stats.Lost)
	_, err := s.live(8, batchOf("TierBlocksCleared"), false)
	require.ErrorIs(t, err, ErrPayload)
}
