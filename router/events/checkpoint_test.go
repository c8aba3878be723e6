package events

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

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

// textOf returns all that a checkpoint has, as text.
func textOf(t testing.TB, c *Checkpoint) string {
	t.Helper()
	fields, err := json.Marshal(c)
	require.NoError(t, err)
	return fmt.Sprint(string(fields), c.copies.groupTiers.list, c.copies.extra, c.copies.missing, c.copies.missAny, c.copies.used)
}

// recode writes and reads a checkpoint.
func recode(t testing.TB, c *Checkpoint) *Checkpoint {
	t.Helper()
	r := partstest.Reader(partstest.Write(c.Write))
	read := ReadCheckpoint(r)
	require.NoError(t, r.End())
	require.Equal(t, textOf(t, c), textOf(t, read))
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
	require.Equal(t, textOf(t, a.checkpoint("")), textOf(t, b.checkpoint("")))
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
