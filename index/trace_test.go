package index_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/index"
)

// conversationIDs is the trace that testdata/README.md describes.
//
//go:embed testdata/conversation_ids.gz
var conversationIDs []byte

// readConversation returns the keys of each request: a hash for an id, over all
// ids up to it.
func readConversation(t testing.TB) (requests [][]byte) {
	unzipped, err := gzip.NewReader(bytes.NewReader(conversationIDs))
	require.NoError(t, err)
	r := bufio.NewReader(unzipped)
	for {
		n, err := binary.ReadUvarint(r)
		if err == io.EOF {
			return requests
		}
		require.NoError(t, err)
		keys := make([]byte, 0, n*sha256.Size)
		var link [sha256.Size + 8]byte
		id := int64(-1)
		for range n {
			d, err := binary.ReadVarint(r)
			require.NoError(t, err)
			id += 1 + d
			binary.BigEndian.PutUint64(link[sha256.Size:], uint64(id))
			hash := sha256.Sum256(link[:])
			copy(link[:], hash[:])
			keys = append(keys, hash[:]...)
		}
		requests = append(requests, keys)
	}
}

// TestEvictionOnTheTrace replays real requests, each looked up and then stored.
// What is due was measured with an exact order of use in which the tail of a chain
// goes first; it is more than head-first LRU finds at every bound.
func TestEvictionOnTheTrace(t *testing.T) {
	requests := readConversation(t)
	require.Len(t, requests, 12031)
	for _, tt := range []struct {
		maxEntries int64
		least      int
	}{
		{0, 105710}, {100_000, 104924}, {50_000, 102290}, {30_000, 93967}, {10_000, 61046}, {1_000, 12847},
	} {
		t.Run(fmt.Sprintf("entries=%d", tt.maxEntries), func(t *testing.T) {
			if index.RaceEnabled && tt.maxEntries != 10_000 {
				t.Skip("one bound is enough for the race detector")
			}
			hits, entries := replayConversation(t, requests, tt.maxEntries)
			t.Logf("%d hit blocks of 288500, at least %d are due; %d entries at the end", hits, tt.least, entries)
			require.GreaterOrEqual(t, hits, tt.least)
			require.LessOrEqual(t, hits, 105710, "more than there are")
			if tt.maxEntries > 0 {
				require.LessOrEqual(t, entries, tt.maxEntries)
			}
		})
	}
}

// replayConversation returns the blocks that were found and the entries left.
func replayConversation(t testing.TB, requests [][]byte, maxEntries int64) (hits int, entries int64) {
	x, err := index.New(index.Config{MaxEntries: maxEntries, Places: 1, Groups: [][]int{{0}}})
	require.NoError(t, err)
	var c index.Cursor
	runs := make([]index.Run, 64)
	blocks := 0
	for _, keys := range requests {
		x.Begin(&c, sha256.Size)
		for rest, more := keys, true; more && len(rest) > 0; {
			filled, covered, _ := x.Probe(&c, rest, 1, runs, true)
			for _, r := range runs[:filled] {
				if r.Coverage == nil {
					more = false
					break
				}
				hits += r.N
			}
			rest = rest[covered*sha256.Size:]
		}
		x.End(&c)
		var w index.Writer
		require.NoError(t, x.Store(&w, []int{0}, keys, sha256.Size))
		blocks += len(keys) / sha256.Size
	}
	require.Equal(t, 288500, blocks)
	return hits, x.Stats().Entries
}
