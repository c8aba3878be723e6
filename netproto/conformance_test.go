package netproto_test

import (
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
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
		return c.judge()
	})
}

// view is what Hashes and chunks have in common.
type view interface {
	Len() int
	At(i int) []byte
}

// chunks are the hashes that key the chunks of a group with blocks of stride hashes.
type chunks struct {
	hashes coordinator.Hashes
	stride int
}

func (c chunks) Len() int        { return c.hashes.Len() / c.stride }
func (c chunks) At(i int) []byte { return c.hashes.At(coordinator.KeyIndex(i, c.stride)) }

// pythonOnly is why a case is skipped.
const pythonOnly = "a slice or a negative index of Python, which Hashes does not have"

func (c *chunkCase) judge() conformance.Verdict {
	v, err := c.view()
	if err != nil {
		if c.Expect.Error == "AssertionError" && errors.Is(err, coordinator.ErrPrecondition) {
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
		if c.Index < 0 {
			return conformance.Skipped(pythonOnly)
		}
		got, ok := at(v, c.Index)
		if ok != (c.Expect.Error == "") || !ok && c.Expect.Error != "IndexError" {
			return conformance.Differs("element %d: found %v, want error %q", c.Index, ok, c.Expect.Error)
		}
		if ok && hex.EncodeToString(got) != c.want(c.Expect.Index, c.Expect.Hex) {
			return conformance.Differs("element %d is %x", c.Index, got)
		}
	case "blob_slice", "chunk_slice":
		return conformance.Skipped(pythonOnly)
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
	want := c.wantAll()
	var got []string
	for i := range v.Len() {
		got = append(got, hex.EncodeToString(v.At(i)))
	}
	if !slices.Equal(got, want) {
		return conformance.Differs("%d elements differ from the expected %d", len(got), len(want))
	}
	return conformance.Verdict{}
}

// wantAll returns the expected elements in hex.
func (c *chunkCase) wantAll() []string {
	want := slices.Clone(c.Expect.Hexes)
	for _, i := range c.Expect.Indexes {
		want = append(want, c.want(&i, nil))
	}
	return want
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

// hashes returns the view over the case's blob.
func (c *chunkCase) hashes() coordinator.Hashes {
	blob := conformance.Blob(c.ID, c.NumHashes, c.HashLen)
	for range c.TailBytes {
		blob = append(blob, 0xee)
	}
	hashLen := c.HashLen
	if c.ViewHashLen != nil {
		hashLen = *c.ViewHashLen
	}
	return coordinator.NewHashes(blob, hashLen)
}

func (c *chunkCase) view() (view, error) {
	hashes := c.hashes()
	if c.BlockSize == 0 {
		return hashes, nil
	}
	coord, err := coordinator.New(coordinator.Pool{
		HashBlockSize: c.HashBlockSize,
		Groups:        []coordinator.Group{{BlockSize: c.BlockSize}},
	})
	if err != nil {
		return nil, err
	}
	return chunks{hashes, coord.Stride(0)}, nil
}

// at returns element i, and false if there is none: the views panic like a slice.
func at(v view, i int) (h []byte, ok bool) {
	defer func() {
		if recover() != nil {
			h, ok = nil, false
		}
	}()
	return v.At(i), true
}
