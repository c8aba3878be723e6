package snapshot

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/internal/partstest"
)

// randomRecord returns a record of at most maxKeys keys, as an index may emit it.
func randomRecord(random *rand.Rand, maxKeys int) *index.DumpRecord {
	r := &index.DumpRecord{Kind: index.DumpKind(1 + random.IntN(4)), Places: []int{}}
	for place := random.IntN(3); place < maxGroupRanks && random.IntN(4) > 0; place += 1 + random.IntN(1<<random.IntN(16)) {
		r.Places = append(r.Places, place)
	}
	switch r.Kind {
	case index.DumpRun:
		r.LastUse = random.Uint64()
		fallthrough
	case index.DumpEvict:
		r.HashLen = 1 + random.IntN(maxHashLen)
		r.Keys = make([]byte, r.HashLen*(1+random.IntN(maxKeys)))
		for i := range r.Keys {
			r.Keys[i] = byte(random.Uint32())
		}
	}
	return r
}

// copies is a visitor that keeps the records.
type copies struct {
	inspector
	records []*index.DumpRecord
}

func (c *copies) record(r *index.DumpRecord) error {
	kept := *r
	kept.Places = append([]int{}, r.Places...)
	kept.Keys = bytes.Clone(r.Keys)
	if len(kept.Keys) == 0 {
		kept.Keys = nil
	}
	c.records = append(c.records, &kept)
	return nil
}

// What is written is read again, over many parts and pools.
func TestRecords(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var out bytes.Buffer
	created := time.Now().UTC()
	w := newWriter(&out, fileInfo{Created: created, Version: "v"})
	var want []*index.DumpRecord
	for range 3 {
		w.beginPool(poolInfo{Name: "p"})
		for range 1000 {
			r := randomRecord(random, index.MaxDumpKeys)
			if n := len(want); n > 0 && random.IntN(2) == 0 {
				r.Places = want[n-1].Places
			}
			require.NoError(t, w.add(r))
			want = append(want, r)
		}
	}
	require.NoError(t, w.End())
	var got copies
	n, err := readAll(t.Context(), bytes.NewReader(out.Bytes()), &got)
	require.NoError(t, err)
	assert.Equal(t, int64(out.Len()), n)
	assert.Equal(t, created, got.info.Created)
	require.Len(t, got.records, len(want))
	for i := range want {
		require.Equal(t, want[i], got.records[i], i)
	}
}

// The largest records that an index emits are read, and what repeats takes little.
func TestLargestRecords(t *testing.T) {
	var out bytes.Buffer
	w := newWriter(&out, fileInfo{})
	w.beginPool(poolInfo{})
	r := &index.DumpRecord{Kind: index.DumpRun, HashLen: maxHashLen, Keys: make([]byte, index.MaxDumpKeys*maxHashLen)}
	for rank := range maxGroupRanks {
		r.Places = append(r.Places, rank)
	}
	for range 10 {
		require.NoError(t, w.add(r))
	}
	require.NoError(t, w.End())
	assert.Less(t, out.Len(), 10*len(r.Keys)+2*maxGroupRanks)
	var got copies
	_, err := readAll(t.Context(), &out, &got)
	require.NoError(t, err)
	require.Equal(t, r, got.records[9])
}

// FuzzLoad loads any records into an index: they are refused or loaded.
func FuzzLoad(f *testing.F) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		stream := partstest.Write(func(w *parts.Writer) { writeRecord(w, randomRecord(random, 4), nil) })
		f.Add(stream[len(partstest.Write(func(*parts.Writer) {})):])
	}
	f.Fuzz(func(t *testing.T, records []byte) {
		var out bytes.Buffer
		w := newWriter(&out, fileInfo{})
		w.beginPool(poolInfo{})
		partstest.Raw(w.Writer, records)
		require.NoError(t, w.End())
		x, err := index.New(index.Config{MaxBytes: index.MinMaxBytes, Places: 4})
		require.NoError(t, err)
		_, _ = readAll(t.Context(), &out, into{x})
	})
}

// into is a visitor that loads all records into an index.
type into struct{ index *index.Index }

func (into) file(fileInfo) error { return nil }

func (into) pool(poolInfo) error { return nil }

func (v into) record(r *index.DumpRecord) error { return v.index.Load(r) }
