package netproto_test

import (
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/netproto"
)

// chunkCase is a case of chunk_hashes.json.
type chunkCase struct {
	ID            string `json:"id"`
	Op            string `json:"op"`
	HashLen       int    `json:"hash_len"`
	ViewHashLen   *int   `json:"view_hash_len"`
	NumHashes     int    `json:"num_hashes"`
	TailBytes     int    `json:"tail_bytes"`
	HashBlockSize int    `json:"hash_block_size"`
	BlockSize     int    `json:"block_size"`
	Index         int    `json:"index"`
	Expect        struct {
		Error   string   `json:"error"`
		Len     *int     `json:"len"`
		Index   *int     `json:"index"`
		Indexes []int    `json:"indexes"`
		Hex     *string  `json:"hex"`
		Hexes   []string `json:"hexes"`
	} `json:"expect"`
}

func TestConformanceChunkHashes(t *testing.T) {
	conformance.Run(t, "chunk_hashes.json", func(c *chunkCase) conformance.Verdict {
		switch {
		case c.Op == "blob_slice" || c.Op == "chunk_slice":
			return conformance.Skipped("slices are a habit of Python")
		case c.Index < 0:
			return conformance.Skipped("negative indexes are a habit of Python")
		}
		return c.judge()
	})
}

// view is what Hashes and Chunks have in common.
type view interface {
	Len() int
	At(i int) []byte
	All() func(yield func(int, []byte) bool)
}

func (c *chunkCase) judge() conformance.Verdict {
	v, err := c.view()
	if err != nil {
		if c.Expect.Error == "AssertionError" && errors.Is(err, netproto.ErrBlockSize) {
			return conformance.Verdict{}
		}
		return conformance.Differs("construction: %v, want %q", err, c.Expect.Error)
	}
	switch c.Op {
	case "blob_len":
		if c.Expect.Len == nil || v.Len() != *c.Expect.Len {
			return conformance.Differs("length %d", v.Len())
		}
	case "blob_get", "chunk_get":
		got, ok := get(v, c.Index)
		if ok != (c.Expect.Error == "") {
			return conformance.Differs("element %d: found %v, want error %q", c.Index, ok, c.Expect.Error)
		}
		if ok && hex.EncodeToString(got) != c.want(c.Expect.Index, c.Expect.Hex) {
			return conformance.Differs("element %d is %x", c.Index, got)
		}
	case "chunks":
		return c.judgeAll(v)
	default:
		return conformance.Differs("unknown operation %q", c.Op)
	}
	return conformance.Verdict{}
}

func (c *chunkCase) judgeAll(v view) conformance.Verdict {
	if c.Expect.Error != "" || c.Expect.Len == nil || v.Len() != *c.Expect.Len {
		return conformance.Differs("length %d, want error %q", v.Len(), c.Expect.Error)
	}
	want := slices.Clone(c.Expect.Hexes)
	for _, i := range c.Expect.Indexes {
		want = append(want, c.want(&i, nil))
	}
	var got []string
	for i, h := range v.All() {
		if i != len(got) {
			return conformance.Differs("iteration gives index %d at %d", i, len(got))
		}
		got = append(got, hex.EncodeToString(h))
	}
	if !slices.Equal(got, want) {
		return conformance.Differs("%d elements differ from the expected %d", len(got), len(want))
	}
	return conformance.Verdict{}
}

// want returns the expected bytes in hex: those of a raw hash, or as given.
func (c *chunkCase) want(index *int, given *string) string {
	if index != nil {
		return hex.EncodeToString(conformance.Hash(c.ID, *index, c.HashLen))
	}
	if given != nil {
		return *given
	}
	return "nothing"
}

func (c *chunkCase) view() (view, error) {
	blob := conformance.Blob(c.ID, c.NumHashes, c.HashLen, nil)
	for range c.TailBytes {
		blob = append(blob, 0xee)
	}
	hashLen := c.HashLen
	if c.ViewHashLen != nil {
		hashLen = *c.ViewHashLen
	}
	hashes := netproto.NewHashes(blob, hashLen)
	if c.BlockSize == 0 {
		return hashes, nil
	}
	return netproto.NewChunks(hashes, c.HashBlockSize, c.BlockSize)
}

// get returns element i, and false if there is none: the views panic like a
// slice.
func get(v view, i int) (h []byte, ok bool) {
	defer func() {
		if recover() != nil {
			h, ok = nil, false
		}
	}()
	return v.At(i), true
}
