package netproto

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// numbers encodes the blocks of anchors.
func numbers(blocks ...uint32) (frame string) {
	for _, b := range blocks {
		frame += be(4, uint64(b))
	}
	return frame
}

// params encodes num_tokens, num_hashes, stride and first.
func params(tokens, hashes, stride, first uint64) string {
	return be(4, tokens) + be(4, hashes) + be(4, stride) + be(4, first)
}

func TestAnchorsRoundTrip(t *testing.T) {
	blob := []byte(hashes(9, 20))
	for name, c := range map[string]struct {
		anchors Anchors
		hashes  int
	}{
		"parameters":     {Anchors{}, 0},
		"hashes alone":   {Anchors{NumHashes: 9, Stride: 1}, 9},
		"anchors":        {Anchors{NumHashes: 1 << 20, Stride: 4, Numbers: []byte(numbers(0, 7, 1<<32-1))}, 3},
		"with digests":   {Anchors{NumHashes: 100, Stride: 2, Numbers: []byte(numbers(3, 8)), Digests: []byte(be(8, 1<<63) + be(8, 2))}, 2},
		"and hashes":     {Anchors{NumHashes: 100, Stride: 2, First: 9, Numbers: []byte(numbers(3, 8)), Digests: []byte(be(8, 0) + be(8, 2))}, 9},
		"largest fields": {Anchors{NumHashes: 1<<32 - 1, Stride: 1<<32 - 1, First: 1<<32 - 1}, 0},
	} {
		for _, envelope := range []string{"", "\x01\x03\x00id\x01\x00"} {
			b := AppendAnchors(nil, []byte(envelope), 4811, &c.anchors, 20, 20*c.hashes)
			b = append(b, blob[:20*c.hashes]...)
			a := &c.anchors
			want := []string{
				fmt.Sprintf("begin anchors len=20 n=%d", c.hashes),
				fmt.Sprintf("anchors env=%x tokens=4811 unaligned=true of=%d stride=%d first=%d numbers=%x digests=%x hashes=%x", envelope,
					a.NumHashes, a.Stride, a.First, a.Numbers, a.Digests, blob[:20*c.hashes]),
			}
			for size := range 70 {
				got, r, err := feed(b, size, Limits{})
				require.NoError(t, err)
				require.Equal(t, want, got, "%s, pieces of %d", name, size)
				require.False(t, r.InMessage())
				require.False(t, r.req.begun)
			}
		}
	}
}

func TestAnchorsRefused(t *testing.T) {
	h3 := hashes(3, 16)
	good := []string{"anchors", params(48, 96, 1, 8), be(2, 16), numbers(1, 7), be(8, 1) + be(8, 2), h3}
	with := func(frame int, body string) []string {
		frames := append([]string(nil), good...)
		frames[frame] = body
		return frames
	}
	ascending := make([]uint32, MaxAnchors+1)
	for i := range ascending {
		ascending[i] = uint32(i)
	}
	for name, c := range map[string]struct {
		frames []string
		want   error
		begun  bool
	}{
		"no params":               {with(1, ""), ErrAnchorsParamsLen, false},
		"short params":            {with(1, params(48, 96, 1, 8)[1:]), ErrAnchorsParamsLen, false},
		"long params":             {with(1, params(48, 96, 1, 8)+"x"), ErrAnchorsParamsLen, false},
		"no hash length":          {with(2, ""), ErrHashLen, false},
		"hash length 0":           {with(2, be(2, 0)), ErrHashLen, false},
		"hash length 65":          {with(2, be(2, 65)), ErrHashLen, false},
		"hash length of one byte": {with(2, be(1, 16)), ErrHashLen, false},
		"hash length of four":     {with(2, be(4, 16)), ErrHashLen, false},
		"a cut number":            {with(3, numbers(1, 7)[1:]), ErrAnchors, false},
		"equal numbers":           {with(3, numbers(7, 7)), ErrAnchors, false},
		"numbers fall":            {with(3, numbers(7, 1)), ErrAnchors, false},
		"fewer digests":           {with(4, be(8, 1)), ErrDigests, false},
		"more digests":            {with(4, be(8, 1)+be(8, 2)+be(8, 3)), ErrDigests, false},
		"a cut digest":            {with(4, be(8, 1)+be(7, 2)), ErrDigests, false},
		"too many anchors":        {[]string{"anchors", good[1], good[2], numbers(ascending...), "", hashes(len(ascending), 16)}, ErrAnchors, false},
		"too many digests":        {with(4, strings.Repeat("digests!", MaxAnchors+1)), ErrAnchors, false},
		"fewer hashes":            {with(5, h3[:16]), ErrAnchorCount, false},
		"no hashes":               {with(5, ""), ErrAnchorCount, false},
		"a cut hash":              {with(5, h3+"x"), ErrCutKey, false},
		"a frame too many":        {append(append([]string(nil), good...), ""), ErrExtraFrame, true},
		"no blob":                 {good[:5], ErrMissingFrame, false},
		"no digests":              {good[:4], ErrMissingFrame, false},
		"the tag alone":           {good[:1], ErrMissingFrame, false},
		"another tag":             {with(0, "anchor"), ErrUnknownTag, false},
		"a longer tag":            {with(0, "anchorss"), ErrUnknownTag, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := append(message(c.frames...), message("stat")...)
			for _, size := range []int{0, 1, 3, 1000} {
				got, _, err := feed(b, size, Limits{})
				require.NoError(t, err, "the connection goes on")
				if c.begun {
					require.Contains(t, got[0], "begin anchors")
					got = got[1:]
				}
				tag := "anchors"
				if c.want == ErrUnknownTag {
					tag = "unknown"
				}
				require.Equal(t, []string{tag + " env= problem=" + c.want.Error(), "stat env= hashes="}, got, "pieces of %d", size)
			}
		})
	}
	most := numbers(ascending[1:]...)
	got, _, err := feed(message("anchors", good[1], good[2], most, strings.Repeat("digests!", MaxAnchors), hashes(MaxAnchors, 16)), 999, Limits{})
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Contains(t, got[1], fmt.Sprintf("numbers=%x", most), "as many as there may be")
}

// TestAnchorsKeepLittle sends the largest frames there may be, and larger ones.
func TestAnchorsKeepLittle(t *testing.T) {
	ascending := make([]uint32, MaxAnchors)
	for i := range ascending {
		ascending[i] = uint32(i)
	}
	r := NewReader(Limits{}, 16)
	b := message("anchors", params(48, 96, 1, 8), be(2, 1), numbers(ascending...), strings.Repeat("digests!", MaxAnchors), strings.Repeat("h", MaxAnchors))
	require.NoError(t, feedAll(r, b, &discard{}))
	require.LessOrEqual(t, cap(r.req.Anchors.Numbers), maxIdleAnchors)
	require.LessOrEqual(t, cap(r.req.Anchors.Digests), maxIdleAnchors)

	b = AppendFrameHeader(message("anchors", params(48, 96, 1, 8), be(2, 1), ""), 50<<20, true)
	b[len(b)-9-2] |= flagMore // of the frame with numbers, which so has digests behind it
	require.NoError(t, feedAll(r, b, &discard{}))
	for range 100 {
		require.NoError(t, feedAll(r, make([]byte, 1000), &discard{}))
	}
	require.LessOrEqual(t, cap(r.req.Anchors.Digests), 2*8*MaxAnchors, "a length that is claimed takes no memory")
}

func TestAnchorsDoNotAllocate(t *testing.T) {
	var a Anchors
	for i := range uint32(100) {
		a.Add(3 * i)
		a.AddDigest(uint64(i))
	}
	a.NumHashes, a.Stride = 300, 1
	blob := []byte(hashes(100, 32))
	requireNoAllocs(t, func(b []byte) []byte {
		return append(AppendAnchors(b, nil, 4800, &a, 32, len(blob)), blob...)
	})
}

func TestAnchorsList(t *testing.T) {
	var a Anchors
	_, ok := a.Digest(0)
	require.False(t, ok)
	a.Add(5)
	_, ok = a.Digest(0)
	require.False(t, ok)
	a.AddDigest(1 << 40)
	a.Add(1<<32 - 1)
	a.AddDigest(7)
	require.Equal(t, 2, a.Len())
	require.Equal(t, uint32(1<<32-1), a.Number(1))
	digest, ok := a.Digest(1)
	require.True(t, ok)
	require.EqualValues(t, 7, digest)
	a.NumHashes, a.First, a.Stride = 1, 2, 3
	a.Reset()
	require.Equal(t, Anchors{Numbers: []byte{}, Digests: []byte{}}, a)
	require.Positive(t, cap(a.Numbers))
}

func TestAnchorsReplies(t *testing.T) {
	envelope := []byte("\x01\x03\x00id\x01\x00")
	for kind, c := range map[byte][]uint32{AnchorsHit: {4800}, AnchorsMore: {1, 1<<32 - 1, 3}, AnchorsParams: {4, 2}} {
		b := AppendAnchorsReply(nil, envelope, kind, c...)
		frames, n, err := ParseMessage(b[len(envelope):], Limits{}, nil)
		require.NoError(t, err)
		require.Equal(t, len(b)-len(envelope), n)
		require.Equal(t, [][]byte{{kind}, []byte(numbers(c...))}, frames)
		var got [4]uint32
		pointers := []*uint32{&got[0], &got[1], &got[2], &got[3]}
		require.True(t, ParseAnchorsReply(frames[1], pointers[:len(c)]...))
		require.Equal(t, c, got[:len(c)])
		require.False(t, ParseAnchorsReply(frames[1], pointers[:len(c)+1]...))
		require.False(t, ParseAnchorsReply(frames[1], pointers[:len(c)-1]...))
		require.False(t, ParseAnchorsReply(append(bytes.Clone(frames[1]), 0), pointers[:len(c)]...))
	}
	require.True(t, ParseAnchorsReply(nil))
}

// TestDigest compares with values of the reference's xxhsum, so that clients in
// other languages agree.
func TestDigest(t *testing.T) {
	for text, want := range map[string]uint64{
		"":    0x2d06800538d394c2,
		"a":   0xe6c632b61e964e1f,
		"abc": 0x78af5f94892f3950,
	} {
		require.Equal(t, want, Digest([]byte(text)), text)
	}
}
