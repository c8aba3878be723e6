package index

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// singly stores keys one by one, in chains of which 64 grow in turn, or each as a chain of its own.
func singly(t testing.TB, x *Index, rng *rand.ChaCha8, stored func() bool, own bool) {
	t.Helper()
	const n = 2048
	chains := make([][]byte, 64)
	for number := 0; !stored(); number = (number + 1) % n {
		for c := range chains {
			if number == 0 {
				chains[c] = make([]byte, n*32)
				_, _ = rng.Read(chains[c])
			}
			var w Writer
			if w.Number(0); number > 0 && !own {
				w.Number(uint32(number))
				w.Behind(cut(chains[c], number-1, number))
			}
			require.NoError(t, x.Store(&w, []int{0}, cut(chains[c], number, number+1), 32))
		}
	}
}

// fillLong stores long chains until an index has been filled with them three times.
func fillLong(t testing.TB, x *Index, rng *rand.ChaCha8) (entries int64) {
	t.Helper()
	keys := make([]byte, 8192*32)
	for stored := x.Stats().Stored; x.Stats().Stored-stored < 3*x.Stats().Entries || !x.evicting; {
		_, _ = rng.Read(keys)
		storeAt(t, x, 0, 0, nil, keys)
	}
	return x.Stats().Entries
}

// TestLongChainsFitAgain stores blocks one by one for some lifetimes of an index, and then long
// chains: nearly as many of their entries fit as if there had been nothing before.
func TestLongChainsFitAgain(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("takes seconds under the race detector and emulators, and has one goroutine")
	}
	cfg := Config{MaxBytes: 12 << 20, Places: 1, Groups: [][]int{{0}}}
	rng := rand.NewChaCha8([32]byte{1})
	want := fillLong(t, mustNew(t, cfg), rng)
	for name, own := range map[string]bool{"in turn": false, "of their own": true} {
		t.Run(name, func(t *testing.T) {
			x := mustNew(t, cfg)
			singly(t, x, rng, func() bool { return x.Stats().Evicted > 2*x.Stats().Entries }, own)
			checkBooks(t, x)
			st := x.Stats()
			got := fillLong(t, x, rng)
			t.Logf("%d entries of long chains, %d stored one by one, then %d", want, st.Entries, got)
			require.GreaterOrEqual(t, got, want*9/10)
			require.LessOrEqual(t, x.Stats().Bytes, cfg.MaxBytes)
			checkBooks(t, x)
		})
	}
}

// BenchmarkProbeOfSingleBlocks looks up chains of 1,024 keys that were stored at once, or one by
// one in turn, and reports the pieces that one lies in.
func BenchmarkProbeOfSingleBlocks(b *testing.B) {
	keys := drawnKeys(0, singleEntries)
	for name, store := range map[string]func(x *Index, keys []byte) error{
		"at-once": storeChains,
		"in-turn": func(x *Index, keys []byte) error { return storeSingly(x, keys, singleChain, 64) },
	} {
		b.Run(name, func(b *testing.B) {
			x := mustNew(b, onePlace(0))
			require.NoError(b, store(x, keys))
			c, runs, n := Cursor{Quiet: true}, make([]Run, 64), 0
			for ; b.Loop(); n++ {
				request := keys[n*singleChain*32%len(keys):][:singleChain*32]
				x.Begin(&c, 32)
				for len(request) > 0 {
					_, covered, _ := x.Probe(&c, request, 1, runs, true)
					request = request[covered*32:]
				}
				x.End(&c)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*singleChain), "ns/key")
			b.ReportMetric(float64(pieces(x, keys, 32))/(singleEntries/singleChain), "pieces")
		})
	}
}

// TestBytesOfSingleBlocks stores chains block by block, 64 in turn.
func TestBytesOfSingleBlocks(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("takes seconds under the race detector and emulators, and has one goroutine")
	}
	for _, n := range []int64{100_000, 200_000, 300_000} {
		x := mustNew(t, onePlace(0))
		singly(t, x, rand.NewChaCha8([32]byte{2}), func() bool { return x.Stats().Entries >= n }, false)
		st := x.Stats()
		t.Logf("%d entries: %.1f bytes each", st.Entries, float64(st.Bytes)/float64(st.Entries))
		require.LessOrEqual(t, st.Bytes, 60*st.Entries)
		checkBooks(t, x)
	}
}

// Chains that grow block by block, in turn, in an index that was empty, can all be followed
// from their ends.
func TestGrowingChainsAreTraced(t *testing.T) {
	const blocks = 300
	for _, chains := range []int{10, 20, 50} {
		x := mustNew(t, onePlace(0))
		keys := make([][]byte, chains)
		for c := range keys {
			keys[c] = chain(uint64(c), blocks, 32)
		}
		for n := range blocks {
			for _, k := range keys {
				var w Writer
				w.Number(uint32(n))
				if n > 0 {
					w.Behind(cut(k, n-1, n))
				}
				require.NoError(t, x.Store(&w, []int{0}, cut(k, n, n+1), 32))
			}
		}
		for _, k := range keys {
			all, _ := x.Confirm(0, nil, k, 32)
			require.True(t, all)
			var trail Trail
			down, done := x.Trace(&trail, cut(k, blocks-1, blocks), blocks-1, 1<<30)
			require.True(t, done)
			require.Zero(t, down, "%d chains", chains)
		}
		checkBooks(t, x)
	}
}
