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
	"slices"
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

// traceTokens is how many tokens a block of the trace has.
const traceTokens = 512

// TestEvictionOnTheTrace replays real requests, each looked up and then stored, and compares what is found with
// exact LRU. Blocks of the trace are cut into smaller ones, as engines have them.
func TestEvictionOnTheTrace(t *testing.T) {
	index.SkipSlow(t)
	requests := readConversation(t)
	require.Len(t, requests, 12031)
	for _, tt := range []struct {
		tokens, maxEntries int
		least              float64 // of the hits of exact LRU
		long               bool
	}{
		{16, 10_000, 0.99, false}, {16, 30_000, 0.99, true}, {16, 100_000, 0.99, true},
		{64, 10_000, 0.95, true}, {512, 10_000, 0.95, false}, {512, 100_000, 0.99, true}, {512, 0, 1, false},
	} {
		t.Run(fmt.Sprintf("tokens=%d/entries=%d", tt.tokens, tt.maxEntries), func(t *testing.T) {
			if tt.long && (testing.Short() || index.RaceEnabled) {
				t.Skip("one bound is enough")
			}
			t.Parallel()
			pieces := traceTokens / tt.tokens
			hits, entries := replayConversation(t, requests, pieces, tt.maxEntries)
			want := newExactLRU(requests, pieces, tt.maxEntries).replay()
			t.Logf("%d hits, %d of exact LRU (%+.2f %%); %d entries at the end", hits, want, 100*(float64(hits)/float64(want)-1), entries)
			require.GreaterOrEqual(t, float64(hits), tt.least*float64(want))
			require.LessOrEqual(t, hits, 105710*pieces, "more than there are")
			if tt.maxEntries > 0 {
				require.LessOrEqual(t, entries, int64(tt.maxEntries))
			}
		})
	}
}

// replayConversation returns the blocks that were found and the entries left. Each block of the trace is cut into
// pieces: keys that differ at the end.
func replayConversation(t testing.TB, requests [][]byte, pieces, maxEntries int) (hits int, entries int64) {
	x, err := index.New(index.Config{MaxEntries: int64(maxEntries), Places: 1, Groups: [][]int{{0}}})
	require.NoError(t, err)
	var c index.Cursor
	runs := make([]index.Run, 64)
	var keys []byte
	for _, blocks := range requests {
		keys = keys[:0]
		for ; len(blocks) > 0; blocks = blocks[sha256.Size:] {
			for piece := range pieces {
				keys = append(keys, blocks[:sha256.Size]...)
				binary.BigEndian.PutUint32(keys[len(keys)-4:], uint32(piece))
			}
		}
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
		require.NoError(t, x.Store(&index.Writer{}, []int{0}, keys, sha256.Size))
	}
	return hits, x.Stats().Entries
}

// exactLRU is a list of entries by use, where the tail of a chain goes first.
type exactLRU struct {
	requests     [][]int32 // of entries
	max, entries int
	newer, older []int32 // neighbours of each entry; older[0] is the newest, newer[0] the oldest
	held         []bool
}

func newExactLRU(requests [][]byte, pieces, maxEntries int) *exactLRU {
	l := &exactLRU{max: maxEntries}
	numbers := map[string]int32{}
	for _, blocks := range requests {
		var entries []int32
		for ; len(blocks) > 0; blocks = blocks[sha256.Size:] {
			key := string(blocks[:sha256.Size-4])
			n, ok := numbers[key]
			if !ok {
				n = int32(len(numbers)*pieces) + 1
				numbers[key] = n
			}
			for piece := range int32(pieces) {
				entries = append(entries, n+piece)
			}
		}
		l.requests = append(l.requests, entries)
	}
	n := len(numbers)*pieces + 1
	l.newer, l.older, l.held = make([]int32, n), make([]int32, n), make([]bool, n)
	return l
}

func (l *exactLRU) remove(e int32) {
	l.older[l.newer[e]], l.newer[l.older[e]] = l.older[e], l.newer[e]
	l.held[e] = false
	l.entries--
}

func (l *exactLRU) add(e int32) {
	first := l.older[0]
	l.newer[e], l.older[e] = 0, first
	l.older[0], l.newer[first] = e, e
	l.held[e] = true
	l.entries++
}

// replay returns how many entries are found.
func (l *exactLRU) replay() (hits int) {
	for _, entries := range l.requests {
		for _, e := range entries {
			if !l.held[e] {
				break
			}
			hits++
		}
		if l.max > 0 {
			entries = entries[:min(len(entries), l.max)]
		}
		for _, e := range slices.Backward(entries) {
			if l.held[e] {
				l.remove(e)
			}
			l.add(e)
		}
		for l.max > 0 && l.entries > l.max {
			l.remove(l.newer[0])
		}
	}
	return hits
}
