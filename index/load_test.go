package index

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each field of a record is checked.
func TestLoadRefusesBadRecords(t *testing.T) {
	keys := drawnKeys(1, MaxDumpKeys+1)
	good := func() DumpRecord {
		return DumpRecord{Kind: DumpRun, Places: []int{0, 2}, Keys: cut(keys, 0, 2), HashLen: 32, LastUse: 3}
	}
	for name, c := range map[string]struct {
		spoil func(r *DumpRecord)
		err   error
	}{
		"no kind":              {func(r *DumpRecord) { r.Kind = 0 }, ErrDumpRecord},
		"a later kind":         {func(r *DumpRecord) { r.Kind = DumpReset + 1 }, ErrDumpRecord},
		"no keys":              {func(r *DumpRecord) { r.Keys = nil }, ErrDumpRecord},
		"too many keys":        {func(r *DumpRecord) { r.Keys = keys }, ErrDumpRecord},
		"cut keys":             {func(r *DumpRecord) { r.Keys = r.Keys[1:] }, ErrCutKey},
		"no hash length":       {func(r *DumpRecord) { r.HashLen = 0 }, ErrHashLen},
		"negative hash length": {func(r *DumpRecord) { r.HashLen = -32 }, ErrHashLen},
		"long hashes":          {func(r *DumpRecord) { r.HashLen = 65 }, ErrHashLen},
		"other hashes":         {func(r *DumpRecord) { r.HashLen = 16 }, ErrOtherHashLen},
		"no places":            {func(r *DumpRecord) { r.Places = nil }, ErrPlace},
		"a negative place":     {func(r *DumpRecord) { r.Places[0] = -1 }, ErrPlace},
		"a place outside":      {func(r *DumpRecord) { r.Places[1] = 3 }, ErrPlace},
		"places descend":       {func(r *DumpRecord) { r.Places[0] = 2 }, ErrPlace},
		"a use too late":       {func(r *DumpRecord) { r.LastUse = MaxDumpUse + 1 }, ErrDumpRecord},
		"evicts no keys":       {func(r *DumpRecord) { r.Kind, r.Keys = DumpEvict, nil }, ErrDumpRecord},
		"evicts elsewhere":     {func(r *DumpRecord) { r.Kind, r.Places[1] = DumpEvict, 3 }, ErrPlace},
		"resets elsewhere":     {func(r *DumpRecord) { r.Kind, r.Places[1] = DumpResetPlaces, math.MaxInt }, ErrPlace},
	} {
		x := mustNew(t, Config{Places: 3, Groups: [][]int{{0}}, HashLen: 32})
		r := good()
		require.NoError(t, x.Load(&r), name)
		c.spoil(&r)
		require.ErrorIs(t, x.Load(&r), c.err, name)
		require.EqualValues(t, 2, x.Stats().Entries, name)
		checkBooks(t, x)
	}
}

// FuzzLoad loads records of any content. The index holds what they say, or less.
func FuzzLoad(f *testing.F) {
	f.Add([]byte("\x01\x03\x00\x00\x10\x20\x00\x05\x01\x01\x00\x00\x08\x10\x00\x02\x02\x02\x00\x00\x08\x10\x00\x02"))
	f.Add([]byte("\x05\x00\x00\x00\x00\x00\x00\x00\x01\x07\xff\xff\xff\x3f\xff\xff\x03\x01\x00\x00\x00\x00\x00\x00\x04\x01\x00\x00\x00\x00\x00\x00"))
	keys := drawnKeys(1, 1<<11)
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := New(Config{MaxBytes: MinMaxBytes, MaxEntries: 1500, Places: 5, Groups: [][]int{{0}, {1, 4}}})
		require.NoError(t, err)
		said := map[string]uint64{}
		for ; len(data) >= 8; data = data[8:] {
			r := fuzzRecord(data, keys)
			if x.Load(&r) != nil {
				continue
			}
			for at := 0; at < len(r.Keys) && r.Kind == DumpRun; at += r.HashLen {
				for _, p := range r.Places {
					said[string(r.Keys[at:at+r.HashLen])] |= 1 << p
				}
			}
		}
		checkBooks(t, x)
		for key, places := range said {
			if s := x.find(x.hash([]byte(key)), []byte(key)); s != noSlot {
				seg, i := x.at(s)
				require.Zero(t, x.coverage[seg.class[i]].places[0]&^places)
			}
		}
		require.LessOrEqual(t, x.entries, int64(min(len(said), 1500)))
	})
}

// fuzzRecord makes a record of 8 bytes: its kind, places, flags and hash length, and which of the keys it has.
func fuzzRecord(data, keys []byte) DumpRecord {
	word := binary.LittleEndian.Uint64(data)
	r := DumpRecord{
		Kind: DumpKind(data[0] % 8), HashLen: 32, LastUse: word >> 8 % (MaxDumpUse + 2),
	}
	if data[2]&8 > 0 && data[3] > 200 {
		r.HashLen = int(int8(data[3]))
	}
	for p := range 6 {
		if data[1]>>p&1 == 1 {
			r.Places = append(r.Places, p)
		}
	}
	from := int(binary.LittleEndian.Uint16(data[4:])) % (1 << 11)
	to := min(from+int(binary.LittleEndian.Uint16(data[6:]))%(MaxDumpKeys+2), 1<<11)
	r.Keys = cut(keys, from, to)
	return r
}
