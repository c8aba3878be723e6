package events

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/internal/partstest"
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

// encode returns the content of a checkpoint.
func encode(c *Checkpoint) []byte { return partstest.Content(c.Write) }

// decode reads any content as a checkpoint.
func decode(content []byte) (*Checkpoint, error) {
	r := partstest.Reader(partstest.Write(func(w *parts.Writer) { partstest.Raw(w, content) }))
	c := ReadCheckpoint(r)
	return c, r.End()
}

// recode writes and reads a checkpoint.
func recode(t testing.TB, c *Checkpoint) *Checkpoint {
	t.Helper()
	r := partstest.Reader(partstest.Write(c.Write))
	read := ReadCheckpoint(r)
	require.NoError(t, r.End())
	require.Equal(t, encode(c), encode(read))
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
	tr := newTracker(set, s.config())
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
	require.Equal(t, encode(a.checkpoint("")), encode(b.checkpoint("")))
	require.Equal(t, a.stats.Stale, b.stats.Stale)
	require.Equal(t, a.nextLive, b.nextLive)
}

// swap replaces the tracker of the simulation by one that begins at f, some steps later. The connection is lost.
func (s *simulation) swap(f fork) {
	s.track, s.set = s.resumed(f)
	s.applied = f.applied
	s.up, s.flight = false, nil
}

// TestSimulationResumes does what TestSimulation does with trackers that are replaced by ones from a
// checkpoint of a moment before: the engine goes on, loses batches and restarts in between. Each is also compared with
// the tracker that it was taken from, once both have lost their connections.
func TestSimulationResumes(t *testing.T) {
	for _, mode := range simModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			complete, withCopies, restarted := 0, 0, 0
			for seed := range uint64(4) {
				s := newSimulation(t, 100+seed, mode)
				var kept *fork
				for range simSteps / 4 {
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

// A checkpoint of a hostile peer is refused or read as another one; it changes nothing and is never out of bounds.
func TestCheckpointDamage(t *testing.T) {
	for _, c := range checkpoints(t, 3) {
		content := encode(c)
		for n := range content {
			_, err := decode(content[:n])
			require.Error(t, err, "%d bytes", n)
		}
		for bit := range len(content) * 8 {
			damaged := slices.Clone(content)
			damaged[bit/8] ^= 1 << (bit % 8)
			useCheckpoint(t, damaged)
		}
	}
}

// useCheckpoint resumes what can be read, and reads it again.
func useCheckpoint(t *testing.T, content []byte) {
	t.Helper()
	c, err := decode(content)
	if err != nil {
		return
	}
	recode(t, c)
	cfg := &Config{Replay: "tcp://127.0.0.1:1", ExactCopies: c.exactCopies}
	tr := newTracker(newTestSet(), cfg)
	require.NoError(t, tr.resume(c))
	require.True(t, tr.connected())
	from := tr.beginReplay()
	require.Equal(t, c.NextSeq-min(c.NextSeq, 1), from)
	_ = tr.replayed(from, storedBatch(1, 2))
	_ = tr.endReplay()
}

// A checkpoint without a batch has no blocks: what is in the Holder is not of it.
func TestCheckpointBeforeTheFirstBatch(t *testing.T) {
	tr := newTracker(newTestSet(), &Config{Replay: "tcp://127.0.0.1:1"})
	c := recode(t, tr.checkpoint("engine-0"))
	set := newTestSet()
	other := newTracker(set, &Config{})
	_, err := other.live(0, storedBatch(1), false)
	require.NoError(t, err)
	require.NoError(t, newTracker(set, &Config{Replay: "tcp://127.0.0.1:1"}).resume(c))
	require.Zero(t, set.Len())
}
