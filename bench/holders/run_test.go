//go:build linux

package holders

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/bench/measure"
)

// asRival names the variable that makes this test binary a rival, with what it does wrong.
const asRival = "HOLDERS_TEST_AS_RIVAL"

func TestMain(m *testing.M) {
	if fault := os.Getenv(asRival); fault != "" {
		os.Exit(fakeRival(fault))
	}
	goleak.VerifyTestMain(m)
}

// fakeRival answers from maps, as a program of bench/rivals would.
func fakeRival(fault string) int {
	if fault == "silent" {
		return 3
	}
	fmt.Fprintln(os.Stdout, `{"ready": true}`)
	held := map[string]map[uint64]bool{}
	var queries [][]uint64
	for commands, replies := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout); ; {
		var c struct {
			Store *struct {
				Holder string
				Blocks []uint64
			}
			Query   []uint64
			Answer  *int
			Measure *int
			Heap    bool
		}
		if commands.Decode(&c) != nil {
			return 0
		}
		switch {
		case c.Store != nil:
			if held[c.Store.Holder] == nil {
				held[c.Store.Holder] = map[uint64]bool{}
			}
			for _, b := range c.Store.Blocks {
				held[c.Store.Holder][b] = true
			}
		case c.Query != nil:
			queries = append(queries, c.Query)
		case c.Answer != nil:
			prefixes := map[string]int{}
			for holder, blocks := range held {
				n := slices.IndexFunc(queries[*c.Answer], func(b uint64) bool { return !blocks[b] })
				if n < 0 {
					n = len(queries[*c.Answer])
				}
				if n > 0 && (fault != "wrong" || *c.Answer != 1) {
					prefixes[holder] = n
				}
			}
			_ = replies.Encode(reply{Prefixes: prefixes})
		case c.Measure != nil && fault == "dies":
			return 4
		case c.Measure != nil && fault == "hangs":
			time.Sleep(time.Hour)
		case c.Measure != nil:
			_ = replies.Encode(reply{Ns: 1e9})
		case c.Heap:
			_ = replies.Encode(reply{Heap: 7000 + 5000*int64(min(1, len(held))), Version: "1.2"})
		}
	}
}

// small returns options that are good and quick.
func small() Options {
	return Options{
		Holders: 5, Hashes: []int{16, 40}, Blocks: 400, Queries: 3, Rounds: 3, TimePerSide: 3 * time.Millisecond, Seed: 1,
		Timeout: 20 * time.Second, OnNote: func(string) {}, OnStep: func(string, int, int) {},
	}
}

// beside returns options to measure beside the fake program.
func beside(t *testing.T, fault string) Options {
	t.Setenv(asRival, fault)
	o := small()
	self, err := filepath.Abs(os.Args[0])
	require.NoError(t, err)
	o.Rivals = []Rival{{"fake", self}}
	return o
}

func TestRun(t *testing.T) {
	r, err := Run(t.Context(), beside(t, "none"))
	require.NoError(t, err)
	assert.Zero(t, r.Wrong)
	assert.Equal(t, 2*(3+3+2)*3, r.Answers, "of two sizes, each kind and all sides")
	assert.Equal(t, []string{"fake 1.2"}, r.Rivals)
	assert.GreaterOrEqual(t, r.Blocks, 400)
	assert.Greater(t, r.Entries, r.Blocks, "some blocks have several holders")
	require.Len(t, r.Memory, 2)
	assert.Equal(t, Memory{Side: "fake", Bytes: 5000, BytesPerBlock: measure.Round(5000/float64(r.Blocks), 1)}, r.Memory[1])
	var names []string
	for _, row := range r.Rows {
		names = append(names, fmt.Sprint(row.Hashes, " ", row.Kind, " ", row.Side))
		assert.Positive(t, row.PerSecond.Min)
		assert.Positive(t, row.NsPerBlock)
		assert.LessOrEqual(t, row.PerSecond.Min, row.PerSecond.Median)
		if row.Side == Fleet {
			assert.InDelta(t, 1, row.Ratio.Median, 0)
		}
		if row.Side != "fake" {
			continue
		}
		assert.InDelta(t, 1, row.PerSecond.Median, 0)
		assert.InDelta(t, 1e9/float64(row.Hashes), row.NsPerBlock, 1)
		assert.GreaterOrEqual(t, row.Requests, int64(3*row.Queries))
		assert.Greater(t, row.Ratio.Median, 1.)
	}
	var want []string
	for _, hashes := range []int{16, 40} {
		for _, kind := range Kinds() {
			for _, side := range []string{Fleet, Fleet32, "fake"} {
				want = append(want, fmt.Sprint(hashes, " ", kind, " ", side))
			}
		}
	}
	assert.Equal(t, want, names)
}

func TestWrongAnswer(t *testing.T) {
	o := beside(t, "wrong")
	var notes []string
	o.OnNote = func(text string) { notes = append(notes, text) }
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, 1, r.Wrong)
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "wrong: fake, 16 hashes, hit, query 1: map[], expected map[engine-")
}

func TestLost(t *testing.T) {
	for fault, text := range map[string]string{"silent": "ended (exit status 3)", "dies": "ended (exit status 4)", "hangs": "no answer in 1s"} {
		o := beside(t, fault)
		if fault == "hangs" {
			o.Timeout = time.Second
		}
		r, err := Run(t.Context(), o)
		require.ErrorIs(t, err, measure.ErrLost, fault)
		assert.ErrorContains(t, err, text)
		assert.True(t, r.Partial)
		assert.Empty(t, r.Rows)
	}
	o := small()
	o.Rivals = []Rival{{"false", "/bin/false"}}
	_, err := Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrLost)
}

func TestInterrupted(t *testing.T) {
	stop := errors.New("stop")
	for _, phase := range []string{"fill fleet", "16 hashes, hit: compare answers", "rounds"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		o := beside(t, "none")
		o.Blocks = 100_000 // so that a fill has steps
		if phase != "fill fleet" {
			o.Blocks = 400
		}
		o.OnStep = func(at string, _, _ int) {
			if at == phase {
				cancel(stop)
			}
		}
		r, err := Run(ctx, o)
		require.ErrorIs(t, err, stop, phase)
		assert.True(t, r.Partial)
	}
}

func TestOptions(t *testing.T) {
	for text, change := range map[string]func(*Options){
		"0 holders; give 1 to 4096":        func(o *Options) { o.Holders = 0 },
		"4097 holders":                     func(o *Options) { o.Holders = 4097 },
		"no number of hashes":              func(o *Options) { o.Hashes = nil },
		"7 hashes; give 8 to":              func(o *Options) { o.Hashes = []int{8, 7} },
		"hashes [8 8]: one of them":        func(o *Options) { o.Hashes = []int{8, 8} },
		"0 blocks":                         func(o *Options) { o.Blocks = 0 },
		"0 queries":                        func(o *Options) { o.Queries = 0 },
		"0 rounds":                         func(o *Options) { o.Rounds = 0 },
		"a duration of 0s":                 func(o *Options) { o.TimePerSide = 0 },
		"a timeout of 0s":                  func(o *Options) { o.Timeout = 0 },
		"200000001 blocks; give 1 to 2000": func(o *Options) { o.Blocks = maxBlocks + 1 },
	} {
		o := small()
		change(&o)
		_, err := Run(t.Context(), o)
		require.ErrorIs(t, err, measure.ErrOptions, text)
		assert.ErrorContains(t, err, text)
	}
}

// What is stored is what the queries' right answers say, and the same seed stores the same.
func TestWorkload(t *testing.T) {
	o := small()
	o.Blocks = 5000
	o.Hashes = []int{16, 1000}
	type stored map[int]map[uint64]bool
	pieces := map[int]int{} // how many of so many blocks
	fill := func() (*chainSet, stored, stored) {
		w, held, all := newWorkload(o), stored{}, stored{}
		put := func(holder int, parent, keys []byte) error {
			if parent != nil {
				require.Contains(t, held[holder], binary.BigEndian.Uint64(parent), "a parent that its holder has")
			}
			require.LessOrEqual(t, len(keys), pieceBlocks*keyLen)
			pieces[len(keys)/keyLen]++
			for ; len(keys) > 0; keys = keys[keyLen:] {
				if held[holder] == nil {
					held[holder] = map[uint64]bool{}
				}
				held[holder][binary.BigEndian.Uint64(keys)] = true
			}
			return nil
		}
		require.NoError(t, w.fill(put))
		for holder, blocks := range held {
			all[holder] = maps.Clone(blocks)
		}
		require.NoError(t, w.share(put))
		return w, all, held
	}
	w, before, held := fill()
	again, _, heldAgain := fill()
	assert.Equal(t, held, heldAgain)
	blocks, entries := map[uint64]bool{}, 0
	for _, keys := range before {
		entries += len(keys)
		maps.Copy(blocks, keys)
	}
	assert.Len(t, blocks, w.blocks, "no block was counted twice")
	assert.Equal(t, entries+o.Holders*sharedPrompts*(16+1000), w.entries)
	assert.Positive(t, pieces[pieceBlocks])
	assert.Greater(t, pieces[1], 2*outputBlocks, "outputs")
	for _, a := range w.apps {
		for _, kind := range Kinds() {
			list := w.queries(a, kind)
			full := 0
			for _, q := range list {
				keys := q.keys()
				require.Len(t, keys, a.hashes)
				for holder := range o.Holders {
					n := slices.IndexFunc(keys, func(k uint64) bool { return !held[holder][k] })
					if n < 0 {
						n = a.hashes
						full++
					}
					require.Equal(t, n, q.want[holderName(holder)])
				}
			}
			assert.Equal(t, map[string]int{Hit: 3, Miss: 0, Shared: 2 * o.Holders}[kind], full, kind)
		}
	}
	assert.Equal(t, w.queries(w.apps[0], Hit)[0].hashes, again.queries(again.apps[0], Hit)[0].hashes)
}

func TestReportTable(t *testing.T) {
	one := measure.Spread{Median: 1, Min: 1, Max: 1}
	r := Report{
		Holders: 64, Blocks: 1000, Entries: 1200, Rounds: 5, Cores: []int{3}, Answers: 40, Wrong: 2, Partial: true,
		Memory: []Memory{{Fleet, 30000, 30}},
		Rows:   []Row{{Side: Fleet, Kind: Hit, Hashes: 512, Queries: 16, PerSecond: one, NsPerBlock: 19.53, Ratio: one}},
	}
	var table bytes.Buffer
	require.NoError(t, r.WriteTable(&table))
	for _, want := range []string{
		"rivals       left out\n", "partial: ", "fleet: 30.0 bytes a block\n", "40 compared with what was stored, 2 differ\n",
		"\n512 hashes, hit, 16 queries\n", "19.53", "1.00 to 1.00\n",
	} {
		assert.Contains(t, table.String(), want)
	}
}
