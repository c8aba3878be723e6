package snapshot

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/index"
)

// randomRecord returns a record of at most maxKeys keys, as an index may emit it.
func randomRecord(random *rand.Rand, maxKeys int) *index.DumpRecord {
	r := &index.DumpRecord{Kind: index.DumpKind(1 + random.IntN(4)), Places: []int{}}
	for place := random.IntN(3); place < maxPlaces && random.IntN(4) > 0; place += 1 + random.IntN(1<<random.IntN(16)) {
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
	w, err := newWriter(&out, fileInfo{Created: created, Version: "v"})
	require.NoError(t, err)
	var want []*index.DumpRecord
	for range 3 {
		require.NoError(t, w.beginPool(poolInfo{Name: "p"}))
		for range 1000 {
			r := randomRecord(random, index.MaxDumpKeys)
			if n := len(want); n > 0 && random.IntN(2) == 0 {
				r.Places = want[n-1].Places
			}
			require.NoError(t, w.add(r))
			want = append(want, r)
		}
	}
	require.NoError(t, w.end())
	assert.Greater(t, out.Len(), 10*maxPart)
	var got copies
	n, err := readAll(t.Context(), bytes.NewReader(out.Bytes()), &got)
	require.NoError(t, err)
	assert.Equal(t, int64(out.Len()), n)
	assert.Equal(t, w.bytes, n)
	assert.Equal(t, created, got.info.Created)
	require.Len(t, got.records, len(want))
	for i := range want {
		require.Equal(t, want[i], got.records[i], i)
	}
}

// The largest record that an index emits fits a part.
func TestLargestRecord(t *testing.T) {
	var out bytes.Buffer
	w, err := newWriter(&out, fileInfo{})
	require.NoError(t, err)
	require.NoError(t, w.beginPool(poolInfo{}))
	r := &index.DumpRecord{Kind: index.DumpRun, HashLen: maxHashLen, Keys: make([]byte, index.MaxDumpKeys*maxHashLen)}
	for place := range maxPlaces {
		r.Places = append(r.Places, place)
	}
	for range 10 {
		require.NoError(t, w.add(r))
	}
	r.Keys = make([]byte, maxPart)
	assert.ErrorContains(t, w.add(r), "at most 1048576 are possible")
}

// FuzzRecords reads any bytes as records. It does not fail in another way than by an error, and what it has
// read is written and read as the same again.
func FuzzRecords(f *testing.F) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		f.Add(appendRecord(appendRecord(nil, randomRecord(random, 4), nil), randomRecord(random, 4), nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := cursor{b: b}
		var r index.DumpRecord
		for first := true; len(c.b) > 0 && c.record(&r, first) == nil; first = false {
			again := cursor{b: appendRecord(nil, &r, nil)}
			var same index.DumpRecord
			if err := again.record(&same, true); err != nil || len(again.b) > 0 {
				t.Fatalf("%+v cannot be read again: %v", r, err)
			}
			require.Equal(t, len(r.Places), len(same.Places))
			r.Places, same.Places = nil, nil
			require.Equal(t, r, same)
		}
	})
}

// FuzzLoad loads any records into an index: that is an error, or done.
func FuzzLoad(f *testing.F) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		f.Add(appendRecord(nil, randomRecord(random, 4), nil))
	}
	f.Fuzz(func(t *testing.T, records []byte) {
		x, err := index.New(index.Config{MaxBytes: index.MinMaxBytes, Places: 4})
		require.NoError(t, err)
		_ = (&reader{}).visitRecords(t.Context(), records, &loader{index: x})
	})
}
