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
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
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
		ways[name] = w
		return w
	}
	w := serve("calls")
	w.lookup = single(fakeClient(t, w.server))
	w = serve("batches")
	w.lookup = batched(fakeClient(t, w.server))
	w = serve("async")
	w.lookup = polled(fakeAsync(t, w.server))
	return ways
}

// answer makes a lookup that the server answers with reply, and returns what was sent.
func (w *lookupWay) answer(reply []byte, numTokens int64, hashes coordinator.Hashes) (hit api.Hit, sent []string, err error) {
	w.replies <- reply
	hit, err = w.lookup(numTokens, hashes)
	select {
	case sent = <-w.sent:
	default:
		<-w.replies
	}
	return hit, sent, err
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

// tailReplies are replies to a lookup, and what a client makes of them.
var tailReplies = []struct {
	reply []byte
	hit   api.Hit
	err   error
}{
	{u32s(16), tailHit(16), nil},
	{u32s(0), tailHit(0), nil},
	{u32s(40, 0, 48), tailHit(40, 0, 48), nil},
	{u32s(40, 0, 48, 1, 40), tailHit(40, 0, 48, 1, 40), nil},
	{u32s(1<<32-1, 1<<32-1, 1<<32-1, 7, 1<<32-1), tailHit(1<<32-1, 1<<32-1, 1<<32-1, 7, 1<<32-1), nil},
	{u32s(40, 0, 39), tailHit(0), ErrReply},
	{nil, tailHit(0), ErrReply},
	{make([]byte, 8), tailHit(0), ErrReply},
	{u32s(0, 2, 3), tailHit(0, 2, 3), nil},
	{make([]byte, 9), tailHit(0), ErrReply},
	{make([]byte, 11), tailHit(0), ErrReply},
	{make([]byte, 13), tailHit(0), ErrReply},
	{u32s(1, 2, 3, 4), tailHit(0), ErrReply},
	{append(u32s(40, 0, 48, 1, 40), 0), tailHit(0), ErrReply},
	{make([]byte, 1000), tailHit(0), ErrReply},
}

// Every way to make a lookup returns the boundaries of its reply. A reply that is no hit
// concerns its lookup alone: the connection stays.
func TestTailBoundaries(t *testing.T) {
	for name, way := range newLookupWays(t) {
		for _, c := range tailReplies {
			hit, _, err := way.answer(c.reply, 1<<32-1, coordinator.Hashes{})
			require.ErrorIs(t, err, c.err, "%s: %x", name, c.reply)
			require.Equal(t, c.hit, hit, "%s: %x", name, c.reply)
		}
		require.EqualValues(t, 1, way.server.dials.Load(), name)
	}
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

// Service and clients give equal hits of an engine whose hits end inside a block.
func TestTailBoundariesOverTCP(t *testing.T) {
	s := startServer(t, lookup.ServiceConfig{Pool: coordinator.Pool{
		VLLM: "0.32.0", HashBlockSize: 4, CacheHitAlignmentTokens: 4,
		Groups: []coordinator.Group{
			{Kind: coordinator.FullAttention, BlockSize: 16},
			{Kind: coordinator.Mamba, BlockSize: 16, MambaCacheMode: "align"},
		},
	}}, server.Limits{})
	hashes := lookuptest.Chain("a", 20, 32)
	writer := dialTest(t, s)
	for group, ends := range [][]int{{16, 32, 48}, {40}} { // tokens at which a block is stored
		for _, end := range ends {
			key := coordinator.NewHashes(hashes[(end/4-1)*32:end/4*32], 32)
			require.NoError(t, writer.Store(background, coordinator.GroupRank{Group: uint16(group)}, key))
		}
	}
	ways := serverWays(t, s)
	for tokens, want := range map[int64]api.Hit{
		80: tailHit(40, 0, 48, 1, 40),
		48: tailHit(40, 0, 48, 1, 40),
		44: tailHit(0), // the full attention block that ends at 48 is not looked up
		0:  tailHit(0),
	} {
		for name, lookup := range ways {
			hit, err := lookup(tokens, coordinator.NewHashes(hashes, 32))
			require.NoError(t, err, name)
			require.Equal(t, want, hit, "%s: %d tokens", name, tokens)
		}
	}
}

// serverWays are the ways to look up in a server, and its service.
func serverWays(t *testing.T, s testServer) map[string]lookupFunc {
	ways := map[string]lookupFunc{"service": func(numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
		return s.service.Lookup(background, numTokens, hashes)
	}}
	c := dialTest(t, s)
	ways["calls"], ways["batches"], ways["async"] = single(c), batched(c), polled(c.Async())
	return ways
}
