package fleet

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/internal/partstest"
	"github.com/hitline/hitline/router/events"
)

// runHistory returns an oracle whose holders have something, about which nothing was asked: that is slow.
func runHistory(t *testing.T, kind oracleKind, seed uint64, steps int) *oracle {
	o := newOracle(t, kind, seed)
	o.isSilent = true
	for range steps {
		o.step()
	}
	o.isSilent = false
	return o
}

// reload replaces the fleet of an oracle by one that has loaded its snapshot.
func (o *oracle) reload() {
	snapshot := partstest.Reader(snapshotOf(o.fleet))
	fleet, err := New(o.fleet.cfg)
	require.NoError(o.t, err)
	o.fleet = fleet
	require.NoError(o.t, fleet.Load(snapshot))
	require.NoError(o.t, snapshot.End())
	o.model.start = o.model.now
	for id, m := range o.model.holders {
		for _, e := range m.entries {
			e.isPredicted = false
		}
		h := o.fleet.Get(id)
		require.NotNil(o.t, h)
		require.True(o.t, h.stale)
		h.SetStale(m.stale)
		o.holders[id] = h
	}
	o.check()
}

// A fleet that has loaded a snapshot goes on as the one before, without its predictions.
func TestLoadedFleetGoesOn(t *testing.T) {
	for i, kind := range oracleKinds {
		t.Run(kind.name, func(t *testing.T) {
			o := runHistory(t, kind, uint64(100+i), 900)
			o.reload()
			for range 40 {
				o.step()
			}
			o.reload()
			o.check()
		})
	}
}

func snapshotOf(f *Fleet) []byte { return partstest.Write(f.Snapshot().Write) }

// A snapshot that does not suit the fleet, or that cannot be read to its end, loads nothing.
func TestLoadErrors(t *testing.T) {
	o := runHistory(t, oracleKinds[0], 2, 300)
	whole := snapshotOf(o.fleet)
	load := func(cfg Config, snapshot []byte) error {
		f, err := New(cfg)
		require.NoError(t, err)
		err = f.Load(partstest.Reader(snapshot))
		if err != nil {
			require.Zero(t, f.Stats().Holders)
			_, err := f.Add(ID{Engine: "e0"})
			require.NoError(t, err)
		}
		return err
	}
	require.NoError(t, load(Config{BlockSize: 16}, whole))
	require.ErrorIs(t, load(Config{BlockSize: 16, MaxHolders: 100}, whole), ErrTooMany)
	require.ErrorIs(t, load(Config{BlockSize: 16, MaxBlocks: 10}, whole), ErrFull)
	require.ErrorIs(t, load(Config{BlockSize: 16, MaxBytes: 100_000}, whole), ErrFull)
	require.ErrorIs(t, o.fleet.Load(partstest.Reader(whole)), ErrNotEmpty)
	require.ErrorContains(t, load(Config{BlockSize: 16}, whole[:1000]), "it ends too early")
}

// headOf returns the holders of a snapshot, and their one group and tier.
func headOf(holders ...savedHolder) []byte {
	return partstest.Content(func(w *parts.Writer) {
		w.Uvarint(uint64(len(holders)))
		for i := range holders {
			w.JSON(&holders[i])
		}
		w.Uvarint(1)
		w.JSON(&events.GroupTier{Tier: gpu})
	})
}

var (
	savedA = savedHolder{ID{"a", 1}, []groupSpec{{Seen: true, BlockSize: 16}}}
	// savedSet is one set of one pair: group and tier 0, word 0, holder 0.
	savedSet   = []byte{1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}
	savedBlock = []byte{1, 0, 1, 2, 3, 4, 5, 6, 7, 8}
)

// Content that no fleet writes is refused, though its checksums are right.
func TestLoadRefusesWrongContent(t *testing.T) {
	head, set, block := headOf(savedA), savedSet, savedBlock
	for name, content := range map[string][]byte{
		"right":                                 slices.Concat(head, set, block),
		"block 0807060504030201 is there twice": slices.Concat(head, set, block, block),
		"a block of set 1, there are 1":         slices.Concat(head, set, []byte{1, 1}, block[2:]),
		"set 0 is wrong":                        slices.Concat(head, set[:4], []byte{2}, set[5:], block), // no such holder
		"set 0 is wrong: no such tier":          slices.Concat(head, []byte{1, 1, 1}, set[3:], block),
		"set 0 is wrong: an empty pair":         slices.Concat(head, set[:4], make([]byte, 8), block),
		"set 0 is wrong: equal pairs":           slices.Concat(head, []byte{1, 2}, set[2:], set[2:], block),
		`holder "a", rank 1, is wrong`:          headOf(savedA, savedA),
		`holder "a", rank -1, is wrong`:         headOf(savedHolder{ID: ID{"a", -1}}),
		`holder "b", rank 0, is wrong`:          headOf(savedHolder{ID{"b", 0}, []groupSpec{{BlockSize: -1}}}),
		"set 0 is empty":                        slices.Concat(head, []byte{1, 0}, block),
		"a block is cut":                        slices.Concat(head, set, block[:9]),
	} {
		f, err := New(Config{BlockSize: 16})
		require.NoError(t, err)
		if err = f.Load(snapshotWith(content)); name == "right" {
			require.NoError(t, err)
			require.Equal(t, []HolderStatus{{ID{"a", 1}, true, 1}}, f.Holders())
			continue
		}
		text, _, _ := strings.Cut(name, ": ")
		if name == "a block is cut" {
			text = "the section ends in the middle of a value"
		}
		require.ErrorContains(t, err, text, name)
		require.Zero(t, f.Stats().Holders)
	}
}

// A snapshot that is taken while holders change, has what did not change.
func TestSnapshotDuringChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	chain := randomHashes(rng, 50_000)
	f := newFilled(t, 3, chain)
	h, err := f.Add(ID{Engine: "busy"})
	require.NoError(t, err)
	var stop atomic.Bool
	var changing sync.WaitGroup
	changing.Go(func() {
		for !stop.Load() {
			hashes := randomHashes(rng, 3000)
			assert.NoError(t, h.Store(&events.Blocks{Tier: gpu, Hashes: hashes}, make([]bool, 3000)))
			assert.NoError(t, h.Predict(t.Context(), chain))
			h.Clear()
		}
	})
	for range 10 {
		other, err := New(Config{BlockSize: 16})
		require.NoError(t, err)
		require.NoError(t, other.Load(partstest.Reader(snapshotOf(f))))
		checkCore(t, other)
		for i, h := range other.holders[1:] {
			require.Equal(t, chain.Len()*(i+1)/3, h.len())
		}
	}
	stop.Store(true)
	changing.Wait()
	checkCore(t, f)
}
