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

// What is written is read again, over many parts and pools. The largest records that an index emits fit.
func TestRecords(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var out bytes.Buffer
	created := time.Now().UTC()
	w := newWriter(&out, fileInfo{Created: created, Version: "v"})
	var want []*index.DumpRecord
	largest := &index.DumpRecord{Kind: index.DumpRun, HashLen: maxHashLen, Keys: make([]byte, index.MaxDumpKeys*maxHashLen)}
	for rank := range maxGroupRanks {
		largest.Places = append(largest.Places, rank)
	}
	for range 3 {
		w.beginPool(poolInfo{Name: "p"})
		require.NoError(t, w.add(largest))
		want = append(want, largest)
		for range 1000 {
			r := randomRecord(random, index.MaxDumpKeys)
			if n := len(want); n > 0 && random.IntN(2) == 0 {
				r.Places = want[n-1].Places
			}
			require.NoError(t, w.add(r))
			want = append(want, r)
		}
		require.NoError(t, w.add(largest))
		want = append(want, largest)
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

// FuzzLoad loads any records into an index: they are refused or loaded.
func FuzzLoad(f *testing.F) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		f.Add(partstest.Content(func(w *parts.Writer) { writeRecord(w, randomRecord(random, 4), nil) }))
	}
	f.Fuzz(func(t *testing.T, records []byte) {
		x, err := index.New(index.Config{MaxBytes: index.MinMaxBytes, Places: 4})
		require.NoError(t, err)
		in := partstest.Reader(partstest.Write(func(w *parts.Writer) { partstest.Raw(w, records) }))
		var r index.DumpRecord
		for in.More() {
			if readRecord(in, &r); in.Err() == nil {
				_ = x.Load(&r)
			}
		}
	})
}
