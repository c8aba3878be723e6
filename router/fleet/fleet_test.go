package fleet

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/router/events"
)

var gpu = events.Tier{Medium: "GPU"}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 26)) }

// randomHashes returns n hashes of 8 bytes.
func randomHashes(rng *rand.Rand, n int) coordinator.Hashes {
	return coordinator.NewHashes(appendHashes(make([]byte, 0, n*8), rng, n), 8)
}

func appendHashes(blob []byte, rng *rand.Rand, n int) []byte {
	for range n {
		blob = binary.BigEndian.AppendUint64(blob, rng.Uint64())
	}
	return blob
}

func slice(h coordinator.Hashes, from, to int) coordinator.Hashes {
	n := h.HashLen()
	return coordinator.NewHashes(h.Bytes()[from*n:to*n], n)
}

// newTestFleet returns a fleet of holders that are not stale.
func newTestFleet(t testing.TB, cfg Config, holders int) (*Fleet, []*Holder) {
	cfg.BlockSize = 16
	f, err := New(cfg)
	require.NoError(t, err)
	list := make([]*Holder, holders)
	for i := range list {
		list[i] = addHolder(t, f, fmt.Sprintf("engine-%03d", i))
	}
	return f, list
}

func addHolder(t testing.TB, f *Fleet, engine string) *Holder {
	h, err := f.Add(ID{Engine: engine})
	require.NoError(t, err)
	h.SetStale(false)
	return h
}

// newFilled returns a fleet of holders, of which number i holds the first (i+1)/holders of a chain.
func newFilled(t testing.TB, holders int, chain coordinator.Hashes) *Fleet {
	f, list := newTestFleet(t, Config{}, holders)
	for i, h := range list {
		storeAll(t, h, slice(chain, 0, chain.Len()*(i+1)/holders))
	}
	return f
}

// storeAll stores hashes as an engine's events do.
func storeAll(t testing.TB, h *Holder, hashes coordinator.Hashes) {
	require.NoError(t, h.Store(&events.Blocks{Tier: gpu, Hashes: hashes, BlockSize: 16}, nil))
}

// storeOf stores blocks of a group whose kind is told.
func storeOf(t testing.TB, h *Holder, group int, hashes coordinator.Hashes, kind string, window int64) {
	b := &events.Blocks{Group: group, Tier: gpu, Hashes: hashes, BlockSize: 16, SpecKind: kind, SlidingWindow: window}
	require.NoError(t, h.Store(b, nil))
}

// tokens returns what a holder has of some hashes.
func tokens(t testing.TB, f *Fleet, h *Holder, hashes coordinator.Hashes) int64 {
	var r Result
	require.NoError(t, f.Lookup(&r, hashes))
	for i := range r.Holders {
		if r.Holders[i].ID == h.id {
			return r.Holders[i].Tokens
		}
	}
	return 0
}

// fakeClock is the time of a fleet.
type fakeClock struct{ time.Time }

func (c *fakeClock) now() time.Time { return c.Time }

func (c *fakeClock) pass(d time.Duration) { c.Time = c.Add(d) }

func TestErrors(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no block size": {}, "negative": {BlockSize: 16, MaxBytes: -1}, "bytes": {BlockSize: 16, MaxBytes: MaxBytes + 1}, "holders": {BlockSize: 16, MaxHolders: MaxHolders + 1},
		"group": {BlockSize: 16, Groups: []coordinator.Group{{BlockSize: 24}}}, "groups": {BlockSize: 16, Groups: make([]coordinator.Group, maxGroups+1)},
		"release": {BlockSize: 16, Release: "one", Groups: []coordinator.Group{window(16, 32)}},
	} {
		_, err := New(cfg)
		require.ErrorIs(t, err, fielderror.ErrConfig, name)
	}
	f, holders := newTestFleet(t, Config{MaxHolders: 2}, 2)
	_, err := f.Add(ID{Engine: "third"})
	require.ErrorIs(t, err, ErrTooMany)
	holders[1].Close()
	_, err = f.Add(holders[0].id)
	require.ErrorIs(t, err, ErrExists)
	f.cfg.MaxHolders = maxMedia

	h, short := holders[0], slice(randomHashes(newRand(6), 2), 0, 2)
	seven := short.Bytes()[:14]
	var r Result
	var q Query
	require.ErrorIs(t, f.Lookup(&r, coordinator.NewHashes(seven, 7)), ErrHashLen)
	require.ErrorIs(t, q.Begin(f, 7), ErrHashLen)
	require.ErrorIs(t, h.Store(&events.Blocks{Hashes: coordinator.NewHashes(seven, 7)}, nil), ErrHashLen)
	require.ErrorIs(t, h.Remove(&events.Blocks{Hashes: coordinator.NewHashes(seven, 7)}), ErrHashLen)
	require.ErrorIs(t, h.Predict(t.Context(), coordinator.NewHashes(seven, 7)), ErrHashLen)
	store := func(tier events.Tier) error {
		return h.Store(&events.Blocks{Tier: tier, Hashes: short}, nil)
	}
	require.ErrorIs(t, store(events.Tier{Medium: strings.Repeat("x", events.MaxName+1)}), events.ErrTiers)
	require.ErrorIs(t, store(events.Tier{Medium: Predicted}), events.ErrTiers)
	for i := range maxMedia {
		tier := events.Tier{Medium: string(rune('A' + i))}
		if i > 0 && i%maxHolderMedia == 0 {
			require.ErrorIs(t, store(tier), events.ErrTiers, "none uses up the media of all")
			h = addHolder(t, f, "engine-z"+tier.Medium)
		}
		require.NoError(t, store(tier))
	}
	require.ErrorIs(t, store(events.Tier{Medium: "one more"}), events.ErrTiers)
	h = holders[0]
	require.NoError(t, f.Lookup(&r, short))
	require.Len(t, r.Holders[0].Media, maxHolderMedia)
	for i := range events.MaxGroupTiers - maxHolderMedia {
		require.NoError(t, store(events.Tier{Medium: "A", Ownership: fmt.Sprint(i)}))
	}
	require.ErrorIs(t, store(events.Tier{Medium: "A", Ownership: "one more"}), events.ErrTiers)
	checkCore(t, f)
}
