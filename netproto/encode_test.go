package netproto

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRefusals(t *testing.T) {
	envelope := []byte("\x01\x03\x00id\x01\x00")
	details := []byte(`{"refusal":"busy"}`)
	long := strings.Repeat("why", 100)
	require.Equal(t, string(envelope)+string(message("\x00")), string(AppendRefusal(nil, envelope, StatusFailed, "", nil)))
	require.Equal(t, message("\x00"), AppendRefusal(nil, nil, StatusFailed, "", details), "details need a text in front")
	require.Equal(t, message("\x04", long), AppendRefusal(nil, nil, StatusPartial, long, nil))
	require.Equal(t, string(envelope)+string(message("\x04", "why", string(details))), string(AppendRefusal(nil, envelope, StatusPartial, "why", details)))
}

// A number that does not fit its field is a programming error. Cut, it would be another request.
func TestEncodingPanics(t *testing.T) {
	require.PanicsWithValue(t, "netproto: a frame of a negative length", func() { AppendFrameHeader(nil, -1, false) })
	for _, hashLen := range []int{-1, math.MaxUint16 + 1} {
		for name, encode := range map[string]func(){
			"lookup":       func() { AppendLookup(nil, nil, 1, hashLen, 0) },
			"lookup_from":  func() { AppendLookupFrom(nil, nil, TagLookupFrom, 1, 0, hashLen, 0) },
			"renew":        func() { AppendRenew(nil, nil, hashLen, 0) },
			"store":        func() { AppendKeys(nil, nil, TagStore, WireRank{}, hashLen, 0) },
			"store_prompt": func() { AppendStorePrompt(nil, nil, &Prompt{}, hashLen, 0) },
		} {
			require.Panics(t, encode, "%s, %d", name, hashLen)
		}
	}
	require.NotPanics(t, func() { AppendLookup(nil, nil, 1, math.MaxUint16, 0) })
}

// Each kind has a name that is found again, and a blob only as the last frame but for that of a store.
func TestKinds(t *testing.T) {
	for i := range kinds {
		tag, k := Tag(i), &kinds[i]
		require.NotEmpty(t, k.name, "%d", i)
		require.LessOrEqual(t, len(k.name), maxScratch)
		require.Equal(t, tag, parseTag([]byte(tag.String())))
		require.LessOrEqual(t, k.optional, len(k.fields))
		for _, f := range k.fields {
			require.NotEmpty(t, f.name, k.name)
			require.LessOrEqual(t, 4*len(f.numbers), maxScratch)
		}
	}
	require.Equal(t, "unknown", Tag(NumTags).String())
	require.Equal(t, "unknown", Tag(math.MaxUint8).String())
}

// A flood of refused requests costs little: no more than their texts.
func TestProblemsAllocateLittle(t *testing.T) {
	for _, frames := range [][]string{
		{"what is this"}, {"store", "1234567", be(2, 16), hashes(1, 16)}, {"lookup"}, {"stat", "x"}, {"evict", be(6, 0), be(2, 0), ""}, {"pool", ""},
	} {
		b := message(frames...)
		r, d := NewReader(Limits{}, 16), &discard{}
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _ = feedAll(r, b, d) }), 4.0, frames[0])
	}
}
