package fleet

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/router/events"
)

// runHistory returns an oracle whose holders have something.
func runHistory(t *testing.T, kind oracleKind, seed uint64, steps int) *oracle {
	o := newOracle(t, kind, seed)
	for range steps {
		o.step()
	}
	return o
}

// reload replaces the fleet of an oracle by one that has loaded its snapshot.
func (o *oracle) reload() {
	var buf bytes.Buffer
	n, err := o.fleet.Snapshot().WriteTo(&buf)
	require.NoError(o.t, err)
	require.EqualValues(o.t, buf.Len(), n)
	buf.WriteString("behind")
	cfg := o.fleet.cfg
	o.fleet, err = New(cfg)
	require.NoError(o.t, err)
	require.NoError(o.t, o.fleet.Load(&buf))
	require.Equal(o.t, "behind", buf.String())
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
			for range 200 {
				o.step()
				o.ask()
			}
			o.reload()
			o.check()
		})
	}
}

func snapshotOf(t *testing.T, f *Fleet) []byte {
	var buf bytes.Buffer
	_, err := f.Snapshot().WriteTo(&buf)
	require.NoError(t, err)
	return buf.Bytes()
}

// A damaged or cut snapshot loads nothing.
func TestLoadRefusesDamage(t *testing.T) {
	o := runHistory(t, oracleKinds[4], 1, 300)
	whole := snapshotOf(t, o.fleet)
	rng := rand.New(rand.NewPCG(1, 7))
	for i := range 120 {
		damaged := bytes.Clone(whole)
		if i%2 == 0 {
			damaged = damaged[:rng.IntN(len(damaged))]
		} else {
			damaged[rng.IntN(len(damaged))] ^= byte(1 + rng.IntN(255))
		}
		f, err := New(Config{BlockSize: oracleBlock})
		require.NoError(t, err)
		require.ErrorIs(t, f.Load(bytes.NewReader(damaged)), ErrSnapshot)
		require.Zero(t, f.Stats().Holders)
		require.Zero(t, f.Stats().Blocks)
		require.NoError(t, f.Load(bytes.NewReader(whole)))
	}
}

func TestLoadErrors(t *testing.T) {
	o := runHistory(t, oracleKinds[0], 2, 300)
	whole := snapshotOf(t, o.fleet)
	load := func(cfg Config) error {
		f, err := New(cfg)
		require.NoError(t, err)
		err = f.Load(bytes.NewReader(whole))
		if err != nil {
			require.Zero(t, f.Stats().Holders)
			_, err := f.Add(ID{Engine: "e0"})
			require.NoError(t, err)
		}
		return err
	}
	require.NoError(t, load(Config{BlockSize: 16}))
	require.ErrorIs(t, load(Config{BlockSize: 32}), ErrSnapshot)
	require.ErrorIs(t, load(Config{BlockSize: 16, FirstBytes: true}), ErrSnapshot)
	require.ErrorIs(t, load(Config{BlockSize: 16, MaxHolders: 100}), ErrTooMany)
	require.ErrorIs(t, load(Config{BlockSize: 16, MaxBlocks: 10}), ErrFull)
	require.ErrorIs(t, load(Config{BlockSize: 16, MaxBytes: 100_000}), ErrFull)
	require.ErrorIs(t, o.fleet.Load(bytes.NewReader(whole)), ErrNotEmpty)

	f, err := New(Config{BlockSize: 16})
	require.NoError(t, err)
	broken := fmt.Errorf("the line is broken")
	require.ErrorIs(t, f.Load(io.MultiReader(bytes.NewReader(whole[:1000]), iotest.ErrReader(broken))), broken)
	require.ErrorIs(t, f.Load(bytes.NewReader(nil)), ErrSnapshot)
	require.NoError(t, f.Load(iotest.OneByteReader(bytes.NewReader(whole))))
}

// Content that no fleet writes is refused, though its checksums are right.
func TestLoadRefusesWrongContent(t *testing.T) {
	head := []byte{16, 0, 1, 1, 16, 0, 0, 0, 1, 1, 'a', 2, 1, 1, 3, 'G', 'P', 'U', 0, 0}
	set := []byte{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1} // one set of one pair: group and tier 0, word 0, holder 0
	block := []byte{1, 0, 1, 2, 3, 4, 5, 6, 7, 8}
	for name, content := range map[string][]byte{
		"right":          slices.Concat(head, set, block, []byte{0}),
		"block twice":    slices.Concat(head, set, block, block, []byte{0}),
		"no such set":    slices.Concat(head, set, []byte{1, 1}, block[2:], []byte{0}),
		"no such holder": slices.Concat(head, set[:11], []byte{2}, block, []byte{0}),
		"no such tier":   slices.Concat(head, []byte{1, 1, 1}, set[3:], block, []byte{0}),
		"empty pair":     slices.Concat(head, set[:11], []byte{0}, block, []byte{0}),
		"empty set":      slices.Concat(head, []byte{1, 0}, block, []byte{0}),
		"equal pairs":    slices.Concat(head, []byte{1, 2}, set[2:], set[2:], block, []byte{0}),
		"more behind":    slices.Concat(head, set, block, []byte{0, 0}),
		"cut":            slices.Concat(head, set, block),
	} {
		f, err := New(Config{BlockSize: 16})
		require.NoError(t, err)
		if err = f.Load(bytes.NewReader(snapshotWith(content))); name == "right" {
			require.NoError(t, err)
			require.Equal(t, []Status{{ID{"a", 1}, true, 1}}, f.Holders())
			continue
		}
		require.ErrorIs(t, err, ErrSnapshot, name)
		require.Zero(t, f.Stats().Holders)
	}
}

// A snapshot that is taken while holders change, has what did not change.
func TestSnapshotDuringChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	chain := randomHashes(rng, 50_000)
	f := newFilled(t, 3, chain)
	stop, done := make(chan struct{}), make(chan struct{})
	h, err := f.Add(ID{Engine: "busy"})
	require.NoError(t, err)
	go func() {
		defer close(done)
		var err error
		for err == nil {
			select {
			case <-stop:
				return
			default:
			}
			hashes := randomHashes(rng, 3000)
			var held [3000]bool
			err = h.Store(&events.Blocks{Tier: gpu, Hashes: hashes}, held[:])
			if err == nil {
				err = h.Predict(chain)
			}
			h.Clear()
		}
		t.Error(err)
	}()
	for range 10 {
		other, err := New(Config{BlockSize: 16})
		require.NoError(t, err)
		require.NoError(t, other.Load(bytes.NewReader(snapshotOf(t, f))))
		checkCore(t, other)
		for i, h := range other.byName[1:] {
			require.Equal(t, chain.Len()*(i+1)/3, h.Len())
		}
	}
	close(stop)
	<-done
	checkCore(t, f)
}
