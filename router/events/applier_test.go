package events

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
)

type fields = []func([]byte) []byte

// stringField returns a field of text.
func stringField(key, value string) func([]byte) []byte {
	return func(b []byte) []byte { return msgp.AppendString(msgp.AppendString(b, key), value) }
}

// What a source holds after one event after the other, each in a batch of its own: what TestSimulation has no engine for.
func TestApplierCopies(t *testing.T) {
	plain := func(kind string, medium string, more ...func([]byte) []byte) []byte {
		return batchOf(kind, append(fields{hashesField(1), mediumField(medium)}, more...)...)
	}
	stored := func(medium string, more ...func([]byte) []byte) []byte {
		return plain("BlockStored", medium, append(more, parentField(false))...)
	}
	local := stringField("locality", "LOCAL")
	type step struct {
		payload []byte
		held    []uint64
	}
	chunk := func(hashes ...uint64) []byte {
		return batchOf("BlockStored", hashesField(hashes...), mediumField("CPU"), groupField(0), parentField(true))
	}
	remaining := func(hash uint64, counts ...uint32) []byte {
		return batchOf("BlockRemoved", hashesField(hash), mediumField("GPU"), groupField(0), func(b []byte) []byte {
			b = msgp.AppendArrayHeader(msgp.AppendString(b, remainingKey), uint32(len(counts)))
			for _, n := range counts {
				b = msgp.AppendUint32(b, n)
			}
			return b
		})
	}
	const one = true
	for name, test := range map[string]struct {
		steps []step
		one   bool
	}{
		"one removal for all copies": {[]step{
			{gpuEvent(false, 1, 2), []uint64{1, 2}},
			{gpuEvent(false, 2), []uint64{1, 2}},
			{removedBatch(2), []uint64{1}},
		}, one},
		"a removal says how many copies remain": {[]step{
			{gpuEvent(false, 1, 2), []uint64{1, 2}},
			{gpuEvent(true, 2), []uint64{1, 2}},     // a copy that does not count
			{remaining(2, 1), []uint64{1, 2}},       // one is left
			{remaining(2, 0), []uint64{1}},          // none
			{gpuEvent(false, 1, 1, 1), []uint64{1}}, // four
			{remaining(1, 2), []uint64{1}},          // two are left
			{removedBatch(1), []uint64{1}},          // one
			{gpuEvent(false, 1, 1, 1), []uint64{1}}, // four
			{remaining(1, 0), nil},
		}, false},
		"copies remain, but of which tier is not said": {[]step{
			{stored("GPU", groupField(0)), []uint64{1}},
			{stored("GPU", groupField(0), local), []uint64{1, 1}},
			{remaining(1, 1), nil},
		}, false},
		"chunks in CPU have blocks in common": {[]step{
			{chunk(1, 2, 3), []uint64{1, 2, 3}},
			{chunk(1, 2, 4), []uint64{1, 2, 3, 4}},
			{chunk(1, 2, 4), []uint64{1, 2, 3, 4}}, // said twice: it is no new chunk
			{batchOf("BlockRemoved", hashesField(1, 2, 3), mediumField("CPU"), groupField(0)), []uint64{1, 2, 4}},
			{batchOf("BlockRemoved", hashesField(1, 2, 4), mediumField("CPU"), groupField(0)), nil},
		}, false},
		"a removal that may mean two tiers, one with copies": {[]step{
			{stored("GPU", groupField(0)), []uint64{1}},
			{stored("GPU", groupField(0), local), []uint64{1, 1}},
			{stored("GPU", groupField(0), local), []uint64{1, 1}},
			{plain("BlockRemoved", "GPU", groupField(0)), nil},
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, false)
			s.oneRemoval = test.one
			s.connected()
			for i, step := range test.steps {
				s.ok(uint64(i), step.payload)
				s.holds(true, step.held...)
			}
			require.Empty(t, s.copies.extra)
		})
	}

	s := newScript(t, false)
	s.connected()
	s.ok(0, gpuEvent(false, 2))
	_, err := s.live(1, remaining(2, 1, 1), false)
	require.ErrorIs(t, err, ErrPayload)

	// More copies than are counted: too little is held, never too much.
	c := new(copies)
	require.NoError(t, c.addGroupTier(0, &gpu))
	for i := range uint64(maxCopied + 10) {
		c.add(0, &gpu, joined(8, i).At(0))
	}
	require.Len(t, c.extra, maxCopied)
	require.True(t, c.remove(0, &gpu, joined(8, 0).At(0)))
	require.False(t, c.remove(0, &gpu, joined(8, maxCopied+5).At(0)))
}

// A long event reaches the Holder in parts that follow each other.
func TestApplierSplitsLongEvents(t *testing.T) {
	hashes := make([]uint64, 2*maxApply+5)
	for i := range hashes {
		hashes[i] = uint64(i)
	}
	h := &recordingHolder{testSet: newTestSet()}
	s := &script{t, newTracker(h, &Config{}), h.testSet}
	s.connected()
	s.ok(0, gpuEvent(false, hashes...))
	require.Equal(t, []int{maxApply, maxApply, 5}, h.lengths)
	require.Equal(t, [][]byte{joined(8, 99).At(0), joined(8, maxApply-1).At(0), joined(8, 2*maxApply-1).At(0)}, h.parents)
	s.holds(true, hashes...)
	s.ok(1, gpuEvent(false, 7))
	s.ok(2, removedBatch(hashes...))
	s.holds(true, 7) // it has another copy
}

type recordingHolder struct {
	*testSet
	lengths []int
	parents [][]byte
}

func (h *recordingHolder) Store(b *Blocks, held []bool) error {
	h.lengths = append(h.lengths, b.Hashes.Len())
	h.parents = append(h.parents, append([]byte(nil), b.Parent...))
	return h.testSet.Store(b, held)
}

// Blocks of tiers that no event removes are counted, and not held.
func TestApplierUnheld(t *testing.T) {
	for tier, unheld := range map[Tier]bool{
		{Medium: "GPU"}: false, {Medium: "gpu"}: false, {Medium: "CPU"}: false, {Medium: "CPU_PINNED"}: false, {}: false,
		{Medium: "CPU", Locality: "LOCAL"}:      false,
		{Medium: "cpu"}:                         true,
		{Medium: "cuda:0"}:                      true,
		{Medium: "STORAGE"}:                     true,
		{Medium: "STORAGE", Locality: "LOCAL"}:  true,
		{Medium: "STORAGE", Locality: "REMOTE"}: true,
		{Medium: "STORAGE", Ownership: "kvcr"}:  false,
		{Medium: "FS"}:                          true,
		{Medium: "OBJ"}:                         true,
	} {
		s := newScript(t, false)
		s.connected()
		s.ok(0, batchOf("BlockStored", mediumField(tier.Medium), stringField("locality", tier.Locality),
			stringField("ownership", tier.Ownership), groupField(0), hashesField(1, 2), parentField(false)))
		if unheld {
			s.holds(true)
		} else {
			s.holds(true, 1, 2)
		}
		require.Equal(t, unheld, s.stats.Unheld == 2, tier)
		s.status()
		require.Equal(t, unheld, s.warning() != "", "%v: %s", tier, s.warning())
	}
}

// Of what may be a full report of a sliding window of 6 tokens, or 2 blocks, an incomplete source stores the window, and
// a complete one no block in front of one that the engine may have cached before. A checkpoint has what that needs. A
// source whose Holder has dropped blocks is not complete.
func TestApplierFullReports(t *testing.T) {
	event := func(kind Kind, parent string, hashes ...uint64) *Event {
		return &Event{Kind: kind, Blocks: Blocks{Group: 1, Tier: gpu, SpecKind: "sliding_window", SlidingWindow: 6, BlockSize: 4,
			Parent: []byte(parent), Hashes: joined(8, hashes...)}}
	}
	report := event(KindStored, "", 0, 1, 2, 3)
	for _, test := range []struct {
		name     string
		complete bool
		before   []*Event
		held     []uint64
	}{
		{"incomplete", false, nil, []uint64{2, 3}},
		{"complete", true, nil, []uint64{0, 1, 2, 3}},
		{"one was held", true, []*Event{event(KindStored, "parent", 2)}, []uint64{2, 3}},
		{"copies were not counted", true, []*Event{ // so the engine still caches 3
			report, report, event(KindRemoved, "", 0, 0, 1, 1, 2, 2, 3),
		}, []uint64{3}},
		{"no blocks", true, []*Event{event(KindStored, "")}, []uint64{0, 1, 2, 3}},
		{"dropped", true, []*Event{event(KindStored, "parent", 8), {Kind: KindUnknown}}, []uint64{8, 2, 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			set := newTestSet()
			a := newApplier(set, new(Config), &Status{Complete: test.complete})
			set.SetStale(false)
			for _, e := range append(test.before, report) {
				apply := a.store
				switch e.Kind {
				case KindRemoved:
					apply = a.remove
				case KindUnknown:
					set.dropped++
					continue
				}
				require.NoError(t, apply(e))
				require.NoError(t, a.flush())
				a.copies = recode(t, &Checkpoint{copies: a.copies.clone()}).copies
			}
			require.Equal(t, test.held, numbers(set))
		})
	}
}

// Blocks that the Holder drops during a full report may be those that show which the engine has cached: then none is held.
func TestApplierDropsDuringAFullReport(t *testing.T) {
	set := &droppingSet{testSet: newTestSet()}
	a := newApplier(set, new(Config), &Status{Complete: true})
	set.SetStale(false)
	require.NoError(t, a.store(&Event{Kind: KindStored, Blocks: Blocks{Group: 1, Tier: gpu, SpecKind: "sliding_window", SlidingWindow: 6, BlockSize: 4,
		Hashes: joined(8, 0, 1, 2, 3)}}))
	require.NoError(t, a.flush())
	require.NoError(t, a.store(&Event{Kind: KindStored, Blocks: Blocks{Group: 2, Tier: gpu}}))
	require.Equal(t, 2, set.groupTiers.Len(), "an event without blocks names a group")
	require.Empty(t, numbers(set.testSet))
	require.False(t, a.stats.Complete)
}

// droppingSet drops something with each call of Store.
type droppingSet struct{ *testSet }

func (s *droppingSet) Store(b *Blocks, held []bool) error {
	s.dropped++
	return s.testSet.Store(b, held)
}

// Blocks that have no group and tier are left out, what is held stays, and the source says so until it is cleared.
func TestApplierLeavesOut(t *testing.T) {
	s := newScript(t, false)
	s.connected()
	stored := func(medium string, hashes ...uint64) []byte {
		return batchOf("BlockStored", mediumField(medium), groupField(0), hashesField(hashes...), parentField(false))
	}
	s.ok(0, stored("GPU", 1))
	for i := range uint64(MaxGroupTiers - 1) {
		s.ok(1+i, stored(fmt.Sprint("M", i)))
	}
	s.holds(true, 1)
	s.ok(256, stored("CPU", 2))
	s.holds(false, 1)
	s.status()
	require.Contains(t, s.warning(), `blocks are left out: too many groups and tiers: group 0, tier "CPU"`)
	require.Equal(t, s.warning(), s.reason)

	s.ok(257, batchOf("AllBlocksCleared"))
	s.ok(258, stored("GPU", 3))
	s.status()
	require.Empty(t, s.warning())
	s.set.groupTiers.Max = 1 // as if others had the rest
	s.ok(259, stored("CPU", 4))
	s.holds(false, 3)
	s.status()
	require.Contains(t, s.warning(), "blocks are left out")

	s.ok(260, batchOf("AllBlocksCleared"))
	s.markStale("gone")
	require.NoError(t, s.failed(ErrTiers))
	require.Equal(t, "gone", s.reason, "why it is stale matters more")
}
