package tokens

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// multiplesTold are the sizes of a curve beside that of today, of which a table says something.
var multiplesTold = []float64{.25, .5, 1, 2, 4}

// curveErrors returns by how many points a curve is off in the mean and at worst, beside pools of several times a size.
func curveErrors(c *curve, size int, shareOf func(blocks int) float64) (mean, worst float64) {
	for _, by := range multiplesTold {
		blocks := by * float64(size)
		off := 100 * math.Abs(c.hitShare(blocks)-shareOf(int(blocks)))
		mean += off / float64(len(multiplesTold))
		worst = max(worst, off)
	}
	return mean, worst
}

// sharesOf returns a function that tells what LRU pools give of asks, each size computed once.
func sharesOf(asks []traceAsk, whole bool) func(blocks int) float64 {
	known := map[int]float64{}
	return func(blocks int) float64 {
		if _, ok := known[blocks]; !ok {
			_, c := exactCounts(asks, blocks, whole)
			known[blocks] = float64(c[InPool]) / float64(c.Total()-c[Engine])
		}
		return known[blocks]
	}
}

// requireTrace skips a test unless HITLINE_TEST_TRACE names a trace: of one that is made up, small tables say little.
func requireTrace(t *testing.T) {
	t.Helper()
	if os.Getenv("HITLINE_TEST_TRACE") == "" {
		t.Skip("HITLINE_TEST_TRACE names no trace")
	}
}

// The curve of a trace beside that of exact pools, from tables that track few of its blocks, whichever these are.
func TestCurveOfATrace(t *testing.T) {
	requireTrace(t)
	for _, split := range []int{1, 8} {
		asks := wholePrompts(loadTrace(t, split))
		shareOf := sharesOf(asks, false)
		for _, size := range []int{1_000, 10_000, 30_000} {
			for _, of := range []struct {
				tracked     int
				mean, worst float64 // points
			}{{16_000, 1, 2}, {4_000, 2, 4}} {
				t.Run(fmt.Sprintf("%d tokens, %d blocks, %d tracked", 512/split, size*split, of.tracked), func(t *testing.T) {
					for seed := range uint64(4) {
						account, _ := accountOf(hashedOtherwise(asks, seed), size*split, split, bytesOf(of.tracked), 300*time.Millisecond)
						require.Equal(t, of.tracked, account.table.maxEntries)
						mean, worst := curveErrors(&account.curve, size*split, shareOf)
						t.Logf("off by %.2f points in the mean, %.2f at worst; share %.4f", mean, worst, share(account.table.threshold))
						assert.LessOrEqual(t, mean, of.mean)
						assert.LessOrEqual(t, worst, of.worst)
					}
				})
			}
		}
	}
}

// hashedOtherwise returns the same asks with other hashes.
func hashedOtherwise(asks []traceAsk, seed uint64) (others []traceAsk) {
	for _, a := range asks {
		a.ids = slices.Clone(a.ids)
		for i := range a.ids {
			a.ids[i] += seed << 40
		}
		others = append(others, a)
	}
	return others
}

// The curve of engines that begin where their own caches end is that of pools that are asked the same. Those that are refreshed by whole
// prompts give more, which is told.
func TestCurveOfEngines(t *testing.T) {
	requireTrace(t)
	asks := promptsOfEngines(loadTrace(t, 1), 8, 1_000)
	same, whole := sharesOf(asks, false), sharesOf(asks, true)
	for _, size := range []int{1_000, 10_000, 30_000} {
		for _, tracked := range []int{16_000, 400_000} {
			t.Run(fmt.Sprintf("%d blocks, %d tracked", size, tracked), func(t *testing.T) {
				account, _ := accountOf(asks, size, 1, bytesOf(tracked), 300*time.Millisecond)
				mean, worst := curveErrors(&account.curve, size, same)
				refreshedMean, refreshedWorst := curveErrors(&account.curve, size, whole)
				t.Logf("off by %.2f points in the mean, %.2f at worst; beside refreshed pools %.2f, %.2f", mean, worst, refreshedMean, refreshedWorst)
				assert.LessOrEqual(t, mean, 1.)
			})
		}
	}
}

// accountLine is a line of what an independent program has counted of the conversation trace: the blocks of all prompts over an LRU pool, asked for
// by one asker or by engines that have caches of their own.
type accountLine struct {
	Capacity, Blocks             int64
	Hit, Behind, Evicted, New    int64
	Engines, Cache, Engine, Pool int64
}

func readLines(t *testing.T, path string) (lines []accountLine) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var l accountLine
		require.NoError(t, json.Unmarshal(s.Bytes(), &l))
		lines = append(lines, l)
	}
	return lines
}

// The exact pools of these tests give what an independent program has counted.
func TestExactPools(t *testing.T) {
	requireTrace(t)
	requests := loadTrace(t, 1)
	blocks := int64(0)
	for _, ids := range requests {
		blocks += int64(len(ids))
	}
	for _, l := range readLines(t, "testdata/conversation.jsonl") {
		split := int(max(l.Blocks/blocks, 1))
		if l.Blocks != blocks*int64(split) {
			t.Skip("it is another trace")
		}
		t.Run(fmt.Sprintf("%d blocks of %d parts, %d engines", l.Capacity, split, l.Engines), func(t *testing.T) {
			asks, want := wholePrompts(loadTrace(t, split)), Counts{InPool: l.Hit, Evicted: l.Behind + l.Evicted, New: l.New}
			if l.Engines > 0 {
				asks = promptsOfEngines(requests, int(l.Engines), int(l.Cache))
				want = Counts{Engine: l.Engine, InPool: l.Pool, Evicted: l.Evicted, New: l.New}
			}
			_, got := exactCounts(asks, int(l.Capacity), true)
			if l.Engines == 0 { // blocks behind a gap that nobody asked for are new only if no later one is known
				require.Equal(t, want[InPool], got[InPool])
				require.Equal(t, want[Evicted]+want[New], got[Evicted]+got[New])
				return
			}
			require.Equal(t, want, got)
		})
	}
}
