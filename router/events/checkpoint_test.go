package events

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// cloneSet returns a testSet with the blocks of s, which is stale.
func cloneSet(t *testing.T, s *testSet) *testSet {
	t.Helper()
	c := newTestSet()
	for b := range s.Each {
		require.NoError(t, c.Store(b, make([]bool, b.Hashes.Len())))
	}
	return c
}

// recode encodes and decodes a checkpoint.
func recode(t *testing.T, c *Checkpoint) *Checkpoint {
	t.Helper()
	encoded, err := c.AppendBinary(nil)
	require.NoError(t, err)
	read := new(Checkpoint)
	require.NoError(t, read.UnmarshalBinary(encoded))
	again, err := read.AppendBinary(nil)
	require.NoError(t, err)
	require.Equal(t, encoded, again)
	return read
}

// fork is a simulation at a moment.
type fork struct {
	checkpoint  *Checkpoint
	set         *testSet
	applied     *simBatch
	incarnation int
}

func (s *simulation) fork() fork {
	return fork{recode(s.t, s.track.checkpoint("source")), cloneSet(s.t, s.set), s.applied, s.engine.incarnation}
}

// resumed returns a tracker that begins at f, and its set.
func (s *simulation) resumed(f fork) (*tracker, *testSet) {
	set := cloneSet(s.t, f.set)
	tr := newTracker(set, s.config(), simDecoder{s, new(Decoder)})
	require.NoError(s.t, tr.resume(f.checkpoint))
	require.True(s.t, set.Stale())
	return tr, set
}

// reconnect connects to the engine without losses, and asks it for a replay.
func (s *simulation) reconnect(tr *tracker) {
	tr.markStale("cut")
	for tr.connected() {
		from := tr.beginReplay()
		err := error(nil)
		for _, b := range s.engine.buffer {
			if b.seq >= from && err == nil {
				err = tr.replayed(b.seq, b.payload)
			}
		}
		if err == nil && tr.endReplay() == nil {
			break
		}
		tr.markStale("the replay failed")
	}
}

// requireEqualTrackers requires that two trackers go on in the same way.
func requireEqualTrackers(t *testing.T, a, b *tracker) {
	t.Helper()
	encodedA, err := a.checkpoint("").AppendBinary(nil)
	require.NoError(t, err)
	encodedB, err := b.checkpoint("").AppendBinary(nil)
	require.NoError(t, err)
	require.Equal(t, encodedA, encodedB)
	require.Equal(t, a.stats.Stale, b.stats.Stale)
	require.Equal(t, a.hasLive, b.hasLive)
}

// swap replaces the tracker of the simulation by one that begins at f, some steps later. The connection is lost.
func (s *simulation) swap(f fork) {
	s.track, s.set = s.resumed(f)
	s.applied, s.upTo = f.applied, nil
	s.up, s.flight = false, nil
}

// TestSimulationResumes does what TestSimulation does with trackers that are replaced by ones from a
// checkpoint of a moment before: the engine goes on, loses batches and restarts in between. Each is also compared with
// the tracker that it was taken from, once both have lost their connections.
func TestSimulationResumes(t *testing.T) {
	steps := simSteps(t)
	for _, mode := range simModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			complete, withCopies, restarted := 0, 0, 0
			for seed := range uint64(4) {
				s := newSimulation(t, 100+seed, mode)
				var kept *fork
				for range steps / 4 {
					s.step()
					switch {
					case s.chance(2):
						f := s.fork()
						twin, set := s.resumed(f)
						s.reconnect(s.track)
						s.reconnect(twin)
						requireEqualTrackers(t, s.track, twin)
						require.Equal(t, s.holds(), s.holdsOf(set, twin))
						s.up, s.flight = false, nil
						s.disconnect()
						if twin.stats.Complete && twin.hasLast {
							complete++
							if len(f.checkpoint.copies.extra) > 0 && twin.stats.Restarts+twin.stats.Lost == 0 {
								withCopies++
							}
						}
					case kept == nil && s.chance(5):
						f := s.fork()
						kept = &f
					case kept != nil && s.chance(10):
						if s.engine.incarnation < kept.incarnation+8 {
							s.swap(*kept)
							if s.engine.incarnation > kept.incarnation {
								restarted++
							}
						}
						kept = nil
					}
					s.check()
				}
				require.Positive(t, s.completed)
			}
			t.Logf("%d resumed trackers were complete, %d had copies; %d were of an engine that was gone", complete, withCopies, restarted)
			require.True(t, complete > 10 || !mode.replay)
			require.True(t, withCopies > 10 || !mode.replay || !mode.groups)
			require.Positive(t, restarted)
		})
	}
}

// checkpoints returns checkpoints of a simulation.
func checkpoints(t testing.TB, n int) (list []*Checkpoint) {
	s := newSimulation(t.(*testing.T), 1, simModes[1])
	for len(list) < n {
		for range 50 {
			s.step()
		}
		list = append(list, s.track.checkpoint("source"))
	}
	return list
}

// The bytes of version 1. A change of them needs another version.
func TestCheckpointFormat(t *testing.T) {
	c := &Checkpoint{Name: "engine-0", NextSeq: 300, Complete: true, hasLast: true, rank: 2,
		recent: []recentBatch{{seq: 41, hash: 0x0102030405060708, valid: true}, {seq: 299, hash: 9, valid: true}}}
	require.NoError(t, c.copies.addGroupTier(NoGroup, &Tier{Medium: "GPU"}))
	require.NoError(t, c.copies.addGroupTier(1, &Tier{Medium: "CPU", Locality: "LOCAL", Ownership: "x"}))
	c.copies.add(1, &Tier{Medium: "CPU", Locality: "LOCAL", Ownership: "x"}, []byte("hash"))
	c.copies.recordMissing(NoGroup, &Tier{Medium: "GPU"}, []byte("b"))
	encoded, err := c.AppendBinary(nil)
	require.NoError(t, err)
	require.Equal(t, "\x01\x05"+"\x08engine-0"+"\xac\x02"+"\x04"+
		"\x02"+"\x83\x02\x08\x07\x06\x05\x04\x03\x02\x01"+"\x01\x09\x00\x00\x00\x00\x00\x00\x00"+
		"\x02"+"\x01\x03GPU\x00\x00"+"\x02\x03CPU\x05LOCAL\x01x"+
		"\x01"+"\x01\x04hash\x01"+
		"\x01"+"\x00\x01b", string(encoded))
	recode(t, c)
}

// A damaged checkpoint is refused or read as another one; it changes nothing and is never out of bounds.
func TestCheckpointDamage(t *testing.T) {
	for _, c := range checkpoints(t, 3) {
		encoded, err := c.AppendBinary(nil)
		require.NoError(t, err)
		for n := range encoded {
			var read Checkpoint
			require.ErrorIs(t, read.UnmarshalBinary(encoded[:n]), ErrCheckpoint)
			require.Equal(t, Checkpoint{}, read)
		}
		require.ErrorIs(t, new(Checkpoint).UnmarshalBinary(append(slices.Clone(encoded), 0)), ErrCheckpoint)
		for bit := range len(encoded) * 8 {
			damaged := slices.Clone(encoded)
			damaged[bit/8] ^= 1 << (bit % 8)
			useCheckpoint(t, damaged)
		}
	}
}

// useCheckpoint resumes what can be read, and reads it again.
func useCheckpoint(t *testing.T, encoded []byte) {
	t.Helper()
	c := new(Checkpoint)
	if err := c.UnmarshalBinary(encoded); err != nil {
		require.ErrorIs(t, err, ErrCheckpoint)
		return
	}
	again := recode(t, c)
	require.Equal(t, c.Name, again.Name)
	cfg := &Config{Replay: "tcp://127.0.0.1:1", ExactCopies: c.exactCopies, MaxBlocks: 100}
	tr := newTracker(newTestSet(), cfg, new(Decoder))
	require.NoError(t, tr.resume(c))
	require.True(t, tr.connected())
	from := tr.beginReplay()
	require.Equal(t, c.NextSeq-min(c.NextSeq, 1), from)
	_ = tr.replayed(from, storedBatch(1, 2))
	_ = tr.endReplay()
}

func FuzzCheckpoint(f *testing.F) {
	tr := newTracker(newTestSet(), &Config{Replay: "tcp://127.0.0.1:1", ExactCopies: true}, new(Decoder))
	for seq, payload := range [][]byte{storedBatch(1, 2), storedBatch(2, 3), removedBatch(1), gpuEvent(false, 9)} {
		_, err := tr.live(uint64(seq), payload, true)
		require.NoError(f, err)
		encoded, err := tr.checkpoint("engine-0").AppendBinary(nil)
		require.NoError(f, err)
		f.Add(encoded)
	}
	f.Fuzz(useCheckpoint)
}

// What must not be resumed is refused.
func TestCheckpointErrors(t *testing.T) {
	c := checkpoints(t, 1)[0] // with exact copies
	_, err := NewFollower(Config{Endpoint: "tcp://127.0.0.1:1", Resume: c}, newTestSet())
	require.ErrorIs(t, err, ErrCheckpoint)
	require.ErrorContains(t, err, "ExactCopies")
	encoded, err := c.AppendBinary(nil)
	require.NoError(t, err)
	encoded[0]++
	require.ErrorContains(t, new(Checkpoint).UnmarshalBinary(encoded), "version 2")
}

// A checkpoint without a batch has no blocks: what is in the Holder is not of it.
func TestCheckpointBeforeTheFirstBatch(t *testing.T) {
	tr := newTracker(newTestSet(), &Config{Replay: "tcp://127.0.0.1:1"}, new(Decoder))
	c := recode(t, tr.checkpoint("engine-0"))
	set := newTestSet()
	other := newTracker(set, &Config{}, new(Decoder))
	_, err := other.live(0, storedBatch(1), false)
	require.NoError(t, err)
	require.NoError(t, newTracker(set, &Config{Replay: "tcp://127.0.0.1:1"}, new(Decoder)).resume(c))
	require.Zero(t, set.Len())
}
