package blockhash

import (
	"bytes"
	"encoding/hex"
	"math"
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

// The wanted bytes were printed by pickle.dumps(…, protocol=5) of CPython 3.11.
func TestPickle(t *testing.T) {
	for _, test := range []struct {
		name, want string
		write      func(p *pickler)
	}{
		{"text", "80059507000000000000008c03616263942e", func(p *pickler) { p.text("abc") }},
		{"none has no frame", "80054e2e", func(p *pickler) { p.none() }},
		{"3 bytes have no frame", "80054b012e", func(p *pickler) { p.int(1) }},
		{"4 bytes have one", "80059504000000000000004d00012e", func(p *pickler) { p.int(256) }},
		{"integers", "80059536000000000000004302616294284b014b024d2c014a701101004afbffffff8a060000000000018a0500000080008a08ffffffffffffff7f74944e87942e", func(p *pickler) {
			p.beginTuple(3)
			p.bytes([]byte("ab"))
			p.beginTuple(8)
			p.ints([]int64{1, 2, 300, 70000, -5, 1 << 40, 1 << 31, math.MaxInt64})
			p.endTuple(8)
			p.none()
			p.endTuple(3)
		}},
		{"negative integers", "8005952600000000000000284affffffff4a000000808a05ffffff7fff8a0500000000808a08000000000000008074942e", func(p *pickler) {
			p.beginTuple(5)
			p.ints([]int64{-1, math.MinInt32, math.MinInt32 - 1, -1 << 39, math.MinInt64})
			p.endTuple(5)
		}},
		// ("mm", "x1"), ("mm", "x1"), "a", "a", where only "mm" and "a" are the same objects.
		{"texts again", "8005951f00000000000000288c026d6d948c02783194869468008c0278319486948c016194680574942e", func(p *pickler) {
			p.beginTuple(4)
			for range 2 {
				p.beginTuple(2)
				p.constant("mm")
				p.text("x1")
				p.endTuple(2)
			}
			p.text("a")
			p.text("a")
			p.endTuple(4)
		}},
	} {
		assert.Equal(t, test.want, pickled(test.write), test.name)
	}
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
