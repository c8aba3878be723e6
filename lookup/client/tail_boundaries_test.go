package client

import (
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// lookupFunc makes a lookup and waits for it.
type lookupFunc func(numTokens int64, hashes coordinator.Hashes) (api.Hit, error)

// batched makes a lookup as a batch. A reply that concerns one lookup is not an error of the
// batch.
func batched(c *Client) lookupFunc {
	return func(numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
		lookups := []BatchLookup{{NumTokens: numTokens, Hashes: hashes}}
		if err := c.Batch(background, lookups); err != nil {
			return api.Hit{}, fmt.Errorf("the whole batch: %v; %v", err, lookups[0].Err)
		}
		return lookups[0].Hit, lookups[0].Err
	}
}

// single makes a lookup by Client.Lookup.
func single(c *Client) lookupFunc {
	return func(numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
		return c.Lookup(background, numTokens, hashes)
	}
}

// polled polls until a lookup is answered.
func polled(a *AsyncClient) lookupFunc {
	return func(numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
		for end := time.Now().Add(lookuptest.Patience); time.Now().Before(end); runtime.Gosched() {
			if hit, ready, err := a.Poll("polled", numTokens, hashes); ready {
				return hit, err
			}
		}
		return api.Hit{}, errors.New("never ready")
	}
}

// lookupWays are the ways to make a lookup, each with a server of its own.
type lookupWays map[string]*lookupWay

type lookupWay struct {
	client  *Client
	lookup  lookupFunc
	server  *fakeServer
	replies chan []byte // the next reply
	sent    chan []string
}

// newLookupWays returns clients that end with the test.
func newLookupWays(t *testing.T) lookupWays {
	ways := lookupWays{}
	serve := func(name string) *lookupWay {
		w := &lookupWay{replies: make(chan []byte, 1), sent: make(chan []string, 1)}
		w.server = &fakeServer{answer: func(r *fakeRequest) {
			w.sent <- hexFrames(r.frames)
			r.send(<-w.replies)
		}}
		w.client = fakeClient(t, w.server)
		ways[name] = w
		return w
	}
	w := serve("calls")
	w.lookup = single(w.client)
	w = serve("batches")
	w.lookup = batched(w.client)
	w = serve("async")
	w.lookup = polled(w.client.Async())
	return ways
}

// answer makes a lookup that the server answers with reply, and returns what was sent.
func (w *lookupWay) answer(reply []byte, numTokens int64, hashes coordinator.Hashes) (hit api.Hit, sent []string, err error) {
	sent = w.exchange(reply, func() { hit, err = w.lookup(numTokens, hashes) })
	return hit, sent, err
}

// exchange calls do, which makes a request that the server answers with reply, and returns what was sent.
func (w *lookupWay) exchange(reply []byte, do func()) (sent []string) {
	w.replies <- reply
	do()
	select {
	case sent = <-w.sent:
	default:
		<-w.replies
	}
	return sent
}

// send sends a reply of one frame.
func (r *fakeRequest) send(reply []byte) {
	r.conn.send(netproto.AppendFrame(slices.Clone(r.envelope), reply, false))
}

func hexFrames(frames [][]byte) (texts []string) {
	for _, f := range frames {
		texts = append(texts, hex.EncodeToString(f))
	}
	return texts
}

// tailHit returns a hit with boundaries, pairs of a group and its tokens.
func tailHit(tokens int64, pairs ...int64) api.Hit {
	hit := api.Hit{Tokens: tokens}
	for ; len(pairs) > 0; pairs = pairs[2:] {
		hit.TailBoundaries = append(hit.TailBoundaries, coordinator.TailBoundary{Group: int(pairs[0]), Tokens: pairs[1]})
	}
	return hit
}

// Each lookup of a batch has its own boundaries, also those read at once, and keeps them. One
// bad reply is no error of the batch.
func TestTailBoundariesOfBatch(t *testing.T) {
	answer := func(n uint32) (reply []byte, hit api.Hit, err error) {
		switch n % 4 {
		case 0:
			return u32s(n), tailHit(int64(n)), nil
		case 1:
			return u32s(n, 0, n+1), tailHit(int64(n), 0, int64(n)+1), nil
		case 2:
			return u32s(n, 0, n+2, 1, n), tailHit(int64(n), 0, int64(n)+2, 1, int64(n)), nil
		}
		return u32s(n, 0, n, 1), api.Hit{}, ErrReply
	}
	f := &fakeServer{answer: func(r *fakeRequest) {
		reply, _, _ := answer(r.numTokens)
		r.send(reply)
	}}
	c := fakeClient(t, f)
	batches := [2][]BatchLookup{make([]BatchLookup, 521), make([]BatchLookup, 512)}
	for b, lookups := range batches {
		for i := range lookups {
			lookups[i].NumTokens = int64(b*1000 + i)
		}
		require.NoError(t, c.Batch(background, lookups))
	}
	for _, lookups := range batches {
		for _, l := range lookups {
			_, hit, err := answer(uint32(l.NumTokens))
			require.ErrorIs(t, l.Err, err)
			require.Equal(t, hit, l.Hit)
		}
	}
	require.EqualValues(t, 1, f.dials.Load())
}

// Only boundaries are allocated, once a reply.
func TestTailBoundariesAllocations(t *testing.T) {
	for want, reply := range map[float64][]byte{0: u32s(40), 1: u32s(40, 0, 48, 1, 40, 2, 44)} {
		frames := [][]byte{reply}
		got := testing.AllocsPerRun(100, func() {
			if hit, err := readHit(frames, 40, nil); hit.Tokens != 40 || err != nil {
				t.Error(hit, err)
			}
		})
		require.Equal(t, want, got, "%x", reply)
	}
}
