package tokens

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Engines with caches of their own ask from where these end. The places of each request are those that the test has seen of an exact
// pool, also if saves come late or are lost.
func TestEnginesWithCaches(t *testing.T) {
	for name, of := range map[string]struct {
		size  int // of the pool, 0: without bound
		after time.Duration
		lost  int // every so many-th save
	}{
		"at once":                      {2_000, 0, 0},
		"at once in a large pool":      {30_000, 0, 0},
		"at once in an unbounded pool": {0, 0, 0},
		"late":                         {10_000, time.Minute, 0},
		"very late":                    {0, 10 * time.Minute, 0},
		"every third lost":             {10_000, 0, 3},
		"late, and every third lost":   {2_000, time.Minute, 3},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, true, 256<<20)
			pool := savingPool{lru: newLRU(of.size), after: of.after, lost: of.lost}
			asked, missed := map[uint64]bool{}, map[uint64]int64{} // since it was whole
			sum := Counts{}
			for i, a := range promptsOfEngines(loadTrace(t, 1), 8, 1_000) {
				pool.advance(b.now, func(ids []uint64) {
					b.store(ids)
					for _, id := range ids {
						delete(missed, id)
					}
				})
				found := pool.leading(a.ids, a.start)
				pool.ask(b.now, a.ids, found)
				if !a.isAsked() {
					continue
				}
				known, place := found, NumPlaces
				for k, id := range a.ids[a.start:] {
					if asked[id] {
						known = max(known, a.start+k+1)
					}
				}
				if known > found {
					switch first := missed[a.ids[found]]; {
					case first == 0:
						place = Evicted
					case b.now < first+int64(askGap+defaultFirstLook):
						place = Saving
					default:
						place = Unsaved
					}
				}
				for k, id := range a.ids[a.start:] {
					asked[id] = true
					if a.start+k < found {
						delete(missed, id)
					} else if missed[id] == 0 {
						missed[id] = b.now
					}
				}
				b.recorder.Record(a.of(b.account, 4, found), b.now)
				b.recorder.accounts.Flush()
				b.pass(5 * time.Second) // it is closed
				want := Counts{Engine: int64(4 * a.start), InPool: int64(4 * (found - a.start)), New: int64(4 * (len(a.ids) - known))}
				if place != NumPlaces {
					want[place] = int64(4 * (known - found))
				}
				if len(a.ids)-a.start <= maxSamples {
					require.Equal(t, want, b.account.counts, "request %d", i)
				}
				for p, n := range want {
					sum[p] += n
				}
				b.account.counts = Counts{}
			}
			require.Equal(t, ^uint64(0), b.account.table.threshold, "the table holds everything")
			t.Log(sum)
		})
	}
}
