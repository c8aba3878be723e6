package netproto

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// stoppingRecorder is a recorder whose End stops the Reader at random.
type stoppingRecorder struct {
	recorder
	rng     *rand.Rand
	stopped bool
	stops   int
}

func (r *stoppingRecorder) Begin(q *Request) bool {
	r.checkRunning()
	return r.recorder.Begin(q)
}

func (r *stoppingRecorder) End(q *Request) bool {
	r.checkRunning()
	r.recorder.End(q)
	if r.stopped = r.rng.IntN(2) == 0; r.stopped {
		r.stops++
	}
	return !r.stopped
}

func (r *stoppingRecorder) Dropped(q *Request) {
	r.checkRunning()
	r.recorder.Dropped(q)
}

func (r *stoppingRecorder) Control(out []byte) {
	r.checkRunning()
	r.recorder.Control(out)
}

func (r *stoppingRecorder) checkRunning() {
	if r.stopped {
		r.lines = append(r.lines, "BAD call behind an End that returned false")
	}
}

// checkStopping requires that a handler gets the same calls however the bytes are cut and wherever it
// stops, and that Feed stops right behind the message.
func checkStopping(t *testing.T, b []byte, plain bool, seed uint64) (stops int) {
	limits := Limits{MaxMessage: 70000, MaxFrames: 12}
	want, reader := &recorder{}, newTestReader(limits, plain)
	wantErr := feedAll(reader, bytes.Clone(b), want)

	rng := rand.New(rand.NewPCG(seed, 2))
	got, r := &stoppingRecorder{rng: rng}, newTestReader(limits, plain)
	var err error
	for rest := b; len(rest) > 0 && err == nil; {
		piece := bytes.Clone(rest[:1+rng.IntN(min(len(rest), 1+rng.IntN(2000)))])
		var n int
		n, err = r.Feed(piece, got)
		if err == nil && got.stopped {
			require.False(t, r.InMessage(), "Feed stops behind the message")
		} else if err == nil {
			require.Len(t, piece, n)
		}
		got.stopped = false
		rest = rest[n:]
	}
	require.Equal(t, wantErr, err)
	require.Equal(t, want.lines, got.lines, "seed %d", seed)
	require.Equal(t, reader.InMessage(), r.InMessage())
	return got.stops
}

func TestCutsAndStopsChangeNothing(t *testing.T) {
	h := hashes(3000, 20)
	var b []byte
	for _, m := range [][]byte{
		message("lookup", be(4, 48000), be(2, 20), h),
		message("lookup", be(4, 48000), be(2, 20), h+"cut"),
		message("ping", "a", "bb"),
		message("\x00id", "", "store", be(2, 0)+be(2, 0)+be(2, 0), be(2, 20), h),
		message("stat"),
		message("what"),
		message("explain", numbers(16, 16), be(2, 0), ""),
		message("plan", numbers(48000, 0), be(2, 20), h),
		message("lookup_from", numbers(48000, 16), be(2, 20), h),
		message("renew", be(2, 20), h),
		message("store_mask", numbers(0, 0, 1)),
		message("evict", be(6, 0), be(2, 20), h, "x"),
		message("store_prompt", numbers(0, 0, 0, 0), be(6, 1), be(8, 1), be(2, 20), h),
	} {
		b = append(b, m...)
	}
	stops := 0
	for seed := range uint64(50) {
		stops += checkStopping(t, b, false, seed)
		stops += checkStopping(t, []byte(shaken+"\x04\x05\x04PING12x\x01\x00\x01\x00\x00\x04stat"), false, seed)
		stops += checkStopping(t, []byte(plainShaken+"\x01\x00\x00\x04stat"), true, seed)
	}
	require.Greater(t, stops, 250)
}

// stopping stops behind each message.
type stopping struct {
	discard
	ended int
}

func (s *stopping) End(*Request) bool { s.ended++; return false }

func TestStopLeavesTheRest(t *testing.T) {
	b := append(message("stat"), message("ping", "x")...)
	r, h := NewReader(Limits{}, 16), &stopping{}
	n, err := r.Feed(b, h)
	require.NoError(t, err)
	require.Equal(t, len(message("stat")), n)
	require.Equal(t, 1, h.ended)
	n, err = r.Feed(b[n:], h)
	require.NoError(t, err)
	require.Equal(t, len(message("ping", "x")), n)
	require.Equal(t, 2, h.ended)
}

// blobLefts records what is left of the blob at each call, and stops at the given one.
type blobLefts struct {
	discard
	r     *Reader
	stop  int
	calls []int
}

func (b *blobLefts) next() bool {
	b.calls = append(b.calls, b.r.BlobLeft())
	return len(b.calls) != b.stop
}

func (b *blobLefts) Begin(*Request) bool          { return b.next() }
func (b *blobLefts) Hashes(*Request, []byte) bool { return b.next() }
func (b *blobLefts) End(*Request) bool            { return b.next() }

func TestBlobLeft(t *testing.T) {
	b := message("lookup", be(4, 160), be(2, 32), hashes(10, 32)+"tail")
	head := len(b) - 324
	for name, c := range map[string]struct {
		cut, stop  int
		want       []int
		atCut, end int
	}{
		"whole":               {len(b), 0, []int{320, 0, 0}, 0, 0},
		"skipped at Begin":    {len(b), 1, []int{320, 0}, 0, 0},
		"between hashes":      {head + 64, 0, []int{320, 256, 0, 0}, 256, 0},
		"in a hash":           {head + 74, 0, []int{320, 256, 224, 0, 0}, 246, 0},
		"skipped at Hashes":   {head + 74, 2, []int{320, 256, 0}, 0, 0},
		"skipped behind":      {head + 74, 3, []int{320, 256, 224, 0}, 246, 0},
		"in the partial hash": {len(b) - 2, 0, []int{320, 0, 0}, 0, 0},
	} {
		r := NewReader(Limits{}, 16)
		h := &blobLefts{r: r, stop: c.stop}
		require.NoError(t, feedAll(r, b[:c.cut], h))
		require.Equal(t, c.atCut, r.BlobLeft(), name)
		require.NoError(t, feedAll(r, b[c.cut:], h))
		require.Equal(t, c.want, h.calls, name)
		require.Zero(t, r.BlobLeft(), name)
	}
}

// cloner keeps a clone of each request.
type cloner struct {
	discard
	got []Request
}

func (c *cloner) End(q *Request) bool {
	c.got = append(c.got, q.Clone())
	return true
}

func TestCloneOwnsItsSlices(t *testing.T) {
	h := hashes(2, 20)
	want := []string{}
	var b []byte
	for _, m := range [][]byte{
		message("\x00id", "", "store_prompt", numbers(1, 2, 3, 4), be(6, 1), be(8, 1), be(2, 20), h),
		message("\x00xx", "", "store_prompt", numbers(4, 3, 2, 1), be(6, 7), be(8, 7), be(2, 20), h),
		message("ping", "a", "bb"), message("ping", "cd", ""), message("\x00no", "", "what"),
		message("pool", `{"name":"m"}`), message("pool", "other JSON"), message("auth", "token"), message("auth", "other"),
	} {
		lines, _, err := feed(m, 0, Limits{})
		require.NoError(t, err)
		want = append(want, lines[len(lines)-1])
		b = append(b, m...)
	}
	c := &cloner{}
	require.NoError(t, feedAll(NewReader(Limits{}, 16), b, c))
	clear(b)
	for i := range c.got {
		hashes := ""
		if c.got[i].Tag == TagStorePrompt {
			hashes = h
		}
		require.Equal(t, want[i], line(&c.got[i], []byte(hashes)))
	}
}
