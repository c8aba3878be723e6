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
	s.set.drop(5)
	s.status()
	require.Equal(t, "batch 3 came, not 1", s.reason)
	require.NoError(t, s.replayOf(0, 0, first, storedBatch(2), storedBatch(3)))
	s.status()
	require.Contains(t, s.reason, "max_bytes is used")
	require.False(t, s.stats.Complete)
	s.set.drop(6)
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
