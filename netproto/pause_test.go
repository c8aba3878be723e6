package netproto

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// feedAll feeds all of p to a Reader, also if the handler pauses it.
func feedAll(r *Reader, p []byte, h Handler) error {
	for {
		n, err := r.Feed(p, h)
		if p = p[n:]; err != nil || len(p) == 0 && !r.repeatEnd {
			return err
		}
	}
}

// pausingRecorder is a recorder that pauses its Reader at random in every callback.
type pausingRecorder struct {
	recorder
	reader *Reader
	rng    *rand.Rand
	pauses int
}

func (r *pausingRecorder) maybePause() {
	if r.rng.IntN(3) == 0 {
		r.pauses++
		r.reader.Pause()
	}
}

func (r *pausingRecorder) Begin(q *Request) bool {
	r.maybePause()
	return r.recorder.Begin(q)
}

func (r *pausingRecorder) Hashes(q *Request, hashes []byte) bool {
	r.maybePause()
	if r.rng.IntN(2) == 0 {
		taken := r.rng.IntN(len(hashes)/q.HashLen+1) * q.HashLen
		r.pauses++
		r.reader.Unread(len(hashes) - taken)
		if taken == 0 {
			return true
		}
		hashes = hashes[:taken]
	}
	return r.recorder.Hashes(q, hashes)
}

func (r *pausingRecorder) End(q *Request) {
	r.maybePause()
	if r.rng.IntN(2) == 0 {
		r.pauses++
		r.reader.RepeatEnd()
		return
	}
	r.recorder.End(q)
}

func (r *pausingRecorder) Dropped(q *Request) {
	r.maybePause()
	r.recorder.Dropped(q)
}

func (r *pausingRecorder) Control(out []byte) {
	r.maybePause()
	r.recorder.Control(out)
}

// checkPausing requires that a handler that pauses gets what one gets that does not.
func checkPausing(t *testing.T, b []byte, plain bool, seed uint64) (pauses int) {
	limits := Limits{MaxMessage: 70000, MaxFrames: 12}
	want, reader := &recorder{}, newTestReader(limits, plain)
	wantErr := feedAll(reader, bytes.Clone(b), want)

	rng := rand.New(rand.NewPCG(seed, 2))
	got := &pausingRecorder{reader: newTestReader(limits, plain), rng: rng}
	var err error
	for rest := b; len(rest) > 0 && err == nil; {
		n := 1 + rng.IntN(min(len(rest), 1+rng.IntN(2000)))
		err = feedAll(got.reader, bytes.Clone(rest[:n]), got)
		rest = rest[n:]
	}
	require.Equal(t, wantErr, err)
	require.Equal(t, want.lines, got.lines, "seed %d", seed)
	require.Equal(t, reader.InMessage(), got.reader.InMessage())
	return got.pauses
}

func TestPausingChangesNothing(t *testing.T) {
	h := hashes(3000, 20)
	var b []byte
	for _, m := range [][]byte{
		message("lookup", be(4, 48000), be(2, 20), h),
		message("lookup", be(4, 48000), be(2, 20), h+"cut"),
		message("ping", "a", "bb"),
		message("\x00id", "", "store", be(2, 0)+be(2, 0)+be(2, 0), be(2, 20), h),
		message("stat"),
		message("what"),
		message("explain", be(4, 16), be(2, 0), ""),
		message("plan", be(4, 48000), be(2, 20), h),
		message("store_mask", numbers(0, 0, 1)),
		message("holders", "{}", be(2, 20), h, "x"),
		message("store_prompt", numbers(0, 0, 0, 0), be(6, 1), be(8, 1), be(2, 20), h),
	} {
		b = append(b, m...)
	}
	pauses := 0
	for seed := range uint64(50) {
		pauses += checkPausing(t, b, false, seed)
		pauses += checkPausing(t, []byte(shaken+"\x04\x05\x04PING12x\x01\x00\x01\x00\x00\x04stat"), false, seed)
		pauses += checkPausing(t, []byte(plainShaken+"\x01\x00\x00\x04stat"), true, seed)
	}
	require.Greater(t, pauses, 1000)
}

func TestPauseLeavesTheRest(t *testing.T) {
	b := append(message("stat"), message("ping", "x")...)
	r := NewReader(Limits{}, 16)
	h := &pausing{r: r}
	n, err := r.Feed(b, h)
	require.NoError(t, err)
	require.Equal(t, len(message("stat")), n)
	require.Equal(t, 1, h.ended)
	require.True(t, r.paused)
	n, err = r.Feed(b[n:], h)
	require.NoError(t, err)
	require.Equal(t, len(message("ping", "x")), n)
	require.Equal(t, 2, h.ended)
}

// pausing pauses after each message.
type pausing struct {
	discard
	r     *Reader
	ended int
}

func (p *pausing) End(*Request) { p.ended++; p.r.Pause() }

// TestPieces checks that no call of Hashes gets more than MaxPiece of them.
func TestPieces(t *testing.T) {
	r, h := NewReader(Limits{}, 16), &pieces{}
	require.NoError(t, feedAll(r, message("lookup", be(4, 16), be(2, 1), hashes(5000, 1)), h))
	require.Equal(t, []int{MaxPiece, MaxPiece, MaxPiece, MaxPiece, 5000 - 4*MaxPiece}, h.sizes)
}

type pieces struct {
	discard
	sizes []int
}

func (p *pieces) Hashes(_ *Request, b []byte) bool { p.sizes = append(p.sizes, len(b)); return true }
