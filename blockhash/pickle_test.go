package blockhash

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// pickled returns what write writes, in hex.
func pickled(write func(p *pickler)) string {
	p := &pickler{buf: []byte("dirty"), memo: 7, seen: []memoized{{"mm", 3}}}
	p.begin()
	write(p)
	return hex.EncodeToString(p.finish())
}

// The memo's numbers above 255 have an opcode of their own.
func TestPickleLongMemo(t *testing.T) {
	for n, want := range map[int]string{255: "8c027a7a9468ff74942e", 256: "8c027a7a946a0001000074942e"} {
		got := pickled(func(p *pickler) {
			p.beginTuple(n + 2)
			for range n {
				p.text("some")
			}
			p.constant("zz")
			p.constant("zz")
			p.endTuple(n + 2)
		})
		assert.Equal(t, want, got[len(got)-len(want):])
	}
}

// A frame ends before the first object behind 64 KiB, and texts of that size are in none.
func TestPickleFrames(t *testing.T) {
	frames := func(write func(p *pickler)) (sizes []int) {
		blob, _ := hex.DecodeString(pickled(write))
		for at := bytes.IndexByte(blob, opFrame); at >= 0 && at < len(blob) && blob[at] == opFrame; {
			n := int(blob[at+1]) | int(blob[at+2])<<8 | int(blob[at+3])<<16
			sizes = append(sizes, n)
			at += frameHeader + n
		}
		return sizes
	}
	ones := func(n int) func(p *pickler) {
		return func(p *pickler) {
			p.beginTuple(n)
			p.ints(make([]int64, n))
			p.endTuple(n)
		}
	}
	// A mark, two bytes for each zero, the end of the tuple, its memo and the end.
	assert.Equal(t, []int{1 + 2*32767 + 3}, frames(ones(32767)))
	assert.Equal(t, []int{65537 + 3}, frames(ones(32768)), "no object comes behind the last one")
	assert.Equal(t, []int{65537, 2 + 3}, frames(ones(32769)))
	assert.Equal(t, []int{65537, 65536, 2 + 3}, frames(ones(32768+32768+1)))

	text := strings.Repeat("s", frameTarget)
	assert.Equal(t, []int{5 + len(text) - 1 + 2}, frames(func(p *pickler) { p.text(text[1:]) }))
	large := pickled(func(p *pickler) { p.text(text) })
	assert.Equal(t, "800558"+"00000100", large[:14], "no frame around a large text")
	assert.Equal(t, "942e", large[len(large)-4:], "and none around the two bytes behind it")
}
