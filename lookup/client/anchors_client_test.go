package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/anchorplan"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// dialAs connects with options behind the usual ones.
func dialAs(t testing.TB, addr string, opts ...Option) *Client {
	t.Helper()
	c, err := Dial(background, addr, append([]Option{WithTimeout(lookuptest.Patience)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// asks counts what a server was asked between two calls.
type asks struct {
	server                        testServer
	anchored, undetermined, whole int64
}

func (a *asks) since() (anchored, undetermined, whole int64) {
	st := a.server.Stat()
	anchored, undetermined = st.Anchored-a.anchored, st.AnchoredUndetermined-a.undetermined
	whole = st.Lookups - a.whole - anchored
	a.anchored, a.undetermined, a.whole = st.Anchored, st.AnchoredUndetermined, st.Lookups
	return anchored, undetermined, whole
}

// TestAnchorsOverTCP asks everything both ways, and counts the exchanges.
func TestAnchorsOverTCP(t *testing.T) {
	for name, pool := range lookuptest.AnchoredPools() {
		for kind, opts := range clientKinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				s := startServer(t, lookup.ServiceConfig{Pool: pool}, server.Limits{})
				c := dialAs(t, s.Addrs()[0], append(opts, WithAnchors(1))...)
				coord, err := coordinator.New(pool)
				require.NoError(t, err)
				const n = 640
				hashes := lookuptest.Chain("a", n, 32)
				count := &asks{server: s}
				ask := func(n int) (exchanges int64) {
					t.Helper()
					want, err := s.service.Lookup(t.Context(), int64(16*n), netproto.NewHashes(hashes[:n*32], 32))
					require.NoError(t, err)
					count.since()
					got, err := c.Lookup(background, int64(16*n), netproto.NewHashes(hashes[:n*32], 32))
					require.NoError(t, err)
					require.Equal(t, want.Tokens, got.Tokens, "%d hashes", n)
					anchored, undetermined, whole := count.since()
					require.EqualValues(t, 1, anchored+whole, "answered once")
					require.LessOrEqual(t, anchored+undetermined+whole, int64(3))
					return anchored + undetermined + whole
				}
				require.LessOrEqual(t, ask(n), int64(2), "a miss at the first block")
				lookuptest.StorePrefix(t, s.service, hashes, n)
				require.EqualValues(t, 1, ask(n), "all is there, confirmed by digests")
				require.EqualValues(t, 1, ask(n), "all is there")
				rng := rand.New(rand.NewPCG(1, 2))
				for range 30 {
					ask((1 + rng.IntN(n/4)) * 4)
				}
				for range 30 {
					g, i := rng.IntN(len(s.service.Pool().Groups)), rng.IntN(n)
					stride := coord.Stride(g)
					if rng.IntN(2) == 0 { // an anchor
						var plan anchorplan.Plan
						blockHashes, unit := s.service.AnchorsParams()
						plan.Begin(hashes, 32, int(blockHashes), unit)
						i = (int(plan.Number(rng.IntN(plan.Len())))+1)*int(blockHashes) - 1
					}
					lookuptest.EvictHash(t, s.service, g, hashes, i/stride*stride+stride-1)
					for range 2 {
						require.LessOrEqual(t, ask(n), int64(2), "a range of hashes decides")
					}
					if rng.IntN(3) == 0 {
						lookuptest.StorePrefix(t, s.service, hashes, n)
						ask(n)
						require.LessOrEqual(t, ask(n), int64(2))
					}
				}
				require.NoError(t, s.service.Reset(t.Context()))
				ask(n)
			})
		}
	}
}

// TestAnchorsWithoutDigests looks up a prompt that is too long for digests unasked.
func TestAnchorsWithoutDigests(t *testing.T) {
	s := startServer(t, blocks16, server.Limits{})
	c := dialAs(t, s.Addrs()[0])
	n := 512<<10/32 + 100
	hashes := lookuptest.Chain("a", n, 32)
	count := &asks{server: s}
	ask := func(want int) (exchanges int64) {
		t.Helper()
		count.since()
		hit, err := c.Lookup(background, int64(16*n), netproto.NewHashes(hashes, 32))
		require.NoError(t, err)
		require.EqualValues(t, 16*want, hit.Tokens)
		anchored, undetermined, whole := count.since()
		return anchored + undetermined + whole
	}
	lookuptest.StorePrefix(t, s.service, hashes, n)
	require.EqualValues(t, 2, ask(n), "digests are asked for")
	require.EqualValues(t, 1, ask(n))
	lookuptest.EvictHash(t, s.service, 0, hashes, n-5)
	require.EqualValues(t, 2, ask(n-5), "the hashes of a range are asked for")
	require.NoError(t, s.service.Reset(t.Context()))
	require.NoError(t, s.service.Store(t.Context(), netproto.GroupRank{}, netproto.NewHashes(hashes, 32))) // which tells no numbers
	require.EqualValues(t, 2, ask(n), "all that is between the anchors is asked for")
	require.EqualValues(t, 2, ask(n))
}

// TestAnchorsFrom counts requests of clients that ask by anchors from so many hashes on.
func TestAnchorsFrom(t *testing.T) {
	s := startServer(t, blocks16, server.Limits{})
	hashes := lookuptest.Chain("a", defaultAnchorsMin, 32)
	lookuptest.StorePrefix(t, s.service, hashes, defaultAnchorsMin)
	for name, c := range map[string]struct {
		opts    []Option
		hashes  int
		anchors int64
	}{
		"below the default": {nil, defaultAnchorsMin - 1, 0},
		"the default":       {nil, defaultAnchorsMin, 1},
		"below":             {[]Option{WithAnchors(100)}, 99, 0},
		"from":              {[]Option{WithAnchors(100)}, 100, 1},
		"never":             {[]Option{WithAnchors(0)}, defaultAnchorsMin, 0},
		"less than never":   {[]Option{WithAnchors(-1)}, defaultAnchorsMin, 0},
		"one hash":          {[]Option{WithAnchors(1)}, 1, 1},
		"no hash":           {[]Option{WithAnchors(1)}, 0, 0},
	} {
		client, count := dialAs(t, s.Addrs()[0], c.opts...), &asks{server: s}
		count.since()
		hit, err := client.Lookup(background, int64(16*c.hashes), netproto.NewHashes(hashes[:32*c.hashes], 32))
		require.NoError(t, err)
		require.EqualValues(t, 16*c.hashes, hit.Tokens)
		anchored, undetermined, whole := count.since()
		require.Equal(t, []int64{c.anchors, 0, 1 - c.anchors}, []int64{anchored, undetermined, whole}, name)
	}
}

// TestAnchorsServerRestarts lets a server come back with another pool, whose blocks
// of lookups by anchors are larger.
func TestAnchorsServerRestarts(t *testing.T) {
	for kind, opts := range clientKinds {
		t.Run(kind, func(t *testing.T) {
			addr := "tcp://" + storetest.FreeAddr(t)
			first, err := serveOn(t, blocks16, server.Config{Listen: []string{addr}})
			require.NoError(t, err)
			c := dialAs(t, addr, append(opts, WithAnchors(1))...)
			hashes := lookuptest.Chain("a", 400, 32)
			lookuptest.StorePrefix(t, first.service, hashes, 400)
			ask := func() uint32 {
				hit, err := c.Lookup(background, 6400, netproto.NewHashes(hashes, 32))
				if err != nil {
					require.ErrorIs(t, err, ErrConnect)
					return 0
				}
				return uint32(hit.Tokens)
			}
			require.EqualValues(t, 6400, ask())
			ctx, cancel := context.WithTimeout(background, lookuptest.Patience)
			defer cancel()
			require.NoError(t, first.Shutdown(ctx))

			larger := coordinator.Pool{HashBlockSize: 16, Groups: []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: 64}}}
			second, err := serveOn(t, lookup.ServiceConfig{Pool: larger}, server.Config{Listen: []string{addr}})
			require.NoError(t, err)
			lookuptest.StorePrefix(t, second.service, hashes, 300)
			lookuptest.Eventually(t, "connected again", func() bool { return ask() == 4800 })
			before := second.Stat()
			require.EqualValues(t, 4800, ask())
			require.EqualValues(t, 4800, ask())
			after := second.Stat()
			require.Equal(t, before.Anchored+2, after.Anchored, "by the new stride")
			require.Equal(t, before.Failed, after.Failed)
		})
	}
}

// TestAnchorsOverRemote finds out once that a backend is not asked by anchors, which is
// no failure.
func TestAnchorsOverRemote(t *testing.T) {
	hashes := lookuptest.Chain("a", 50, 32)
	log, logger := lookuptest.NewLog(slog.LevelInfo)
	s := startLogging(t, lookup.ServiceConfig{Pool: blocks16.Pool, Backend: lookuptest.Filled(t, hashes), Remote: patient}, server.Limits{}, logger)
	for kind, opts := range clientKinds {
		before := s.Stat().AnchoredFallbacks
		c := dialAs(t, s.Addrs()[0], append(opts, WithAnchors(1))...)
		for range 5 {
			hit, err := c.Lookup(background, 800, netproto.NewHashes(hashes, 32))
			require.NoError(t, err)
			require.EqualValues(t, 800, hit.Tokens)
		}
		told := s.Stat().AnchoredFallbacks - before
		require.EqualValues(t, 1, told, "%s: one a connection", kind)
	}
	p := lookuptest.DialPeer(t, s.Addrs()[0])
	require.Equal(t, [][]byte{{netproto.AnchorsParams}, u32s(0, 0)}, p.Ask(t, []byte("anchors"), u32s(0, 0, 0, 0), []byte{0, 32}, nil, nil, nil))
	reply := p.Ask(t, []byte("anchors"), u32s(800, 50, 1, 0), []byte{0, 32}, nil, nil, hashes)
	require.Equal(t, [][]byte{{netproto.StatusFailed}, []byte("lookups by anchors are not served here: look it up by its hashes: the backend is asked by hashes")}, reply)
	require.Zero(t, s.Stat().Failed)
	require.Empty(t, log.Take())
}

// TestAnchorsNotServed looks up in pools that are not served by anchors.
func TestAnchorsNotServed(t *testing.T) {
	for name, pool := range map[string]coordinator.Pool{
		"no full attention": {HashBlockSize: 16, Groups: []coordinator.Group{{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 64}}},
		"odd strides": {HashBlockSize: 16, Groups: []coordinator.Group{
			{Kind: coordinator.FullAttention, BlockSize: 32}, {Kind: coordinator.FullAttention, BlockSize: 48}}},
	} {
		t.Run(name, func(t *testing.T) {
			log, logger := lookuptest.NewLog(slog.LevelInfo)
			s := startLogging(t, lookup.ServiceConfig{Pool: pool}, server.Limits{}, logger)
			require.ErrorIs(t, s.service.AnchorsError(), lookup.ErrNoAnchors)
			c := dialAs(t, s.Addrs()[0], WithAnchors(1))
			hashes := lookuptest.Chain("a", 96, 32)
			lookuptest.StorePrefix(t, s.service, hashes, 96)
			for range 3 {
				hit, err := c.Lookup(background, 96*16, netproto.NewHashes(hashes, 32))
				require.NoError(t, err)
				require.EqualValues(t, 96*16, hit.Tokens)
			}
			require.EqualValues(t, 1, s.Stat().AnchoredFallbacks)
			require.Zero(t, s.Stat().Failed)
			require.Zero(t, s.Stat().Anchored)
			require.Empty(t, log.Take())
		})
	}
}

// anchorsFake is a server that is asked for a prompt of 100 hashes in blocks of one.
func anchorsFake(answers ...func(r *fakeRequest)) *fakeServer {
	return &fakeServer{answer: func(r *fakeRequest) {
		switch {
		case r.tag != "anchors":
			r.reply()
		case binary.BigEndian.Uint32(r.frames[1][4:]) == 0 && len(answers) < 3:
			r.conn.send(netproto.AppendAnchorsReply(nil, r.envelope, netproto.AnchorsParams, 1, 1))
		default:
			answer := answers[0]
			answers = answers[1:]
			answer(r)
		}
	}}
}

// anchorsReply sends frames.
func anchorsReply(frames ...[]byte) func(r *fakeRequest) {
	return func(r *fakeRequest) {
		r.conn.send(append(append([]byte(nil), r.envelope...), lookuptest.Encode(frames...)...))
	}
}

func u32s(numbers ...uint32) (b []byte) {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

// TestAnchorsReplies has a server answer what it should not.
func TestAnchorsReplies(t *testing.T) {
	hit, more, params := []byte{netproto.AnchorsHit}, []byte{netproto.AnchorsMore}, []byte{netproto.AnchorsParams}
	for name, c := range map[string]struct {
		frames [][]byte
		want   error
	}{
		"a hit":                    {[][]byte{hit, u32s(1600)}, nil},
		"a refusal":                {[][]byte{{0}, []byte("not now")}, nil}, // all hashes are sent
		"a refusal without reason": {[][]byte{{0}}, nil},
		"a short hit":              {[][]byte{hit, {1, 2, 3}}, ErrReply},
		"a long hit":               {[][]byte{hit, u32s(1, 2)}, ErrReply},
		"a hit without number":     {[][]byte{hit}, ErrReply},
		"a lookup's hit":           {[][]byte{u32s(1600)}, ErrReply},
		"a third frame":            {[][]byte{hit, u32s(1600), {}}, ErrReply},
		"another kind":             {[][]byte{{9}, u32s(1600)}, ErrReply},
		"parameters":               {[][]byte{params, u32s(1, 1)}, ErrReply},
		"a kind of two bytes":      {[][]byte{{1, 1}, u32s(1600)}, ErrReply},
		"no kind":                  {[][]byte{{}, u32s(1600)}, ErrReply},
		"a short range":            {[][]byte{more, u32s(1, 2)}, ErrReply},
		"a long range":             {[][]byte{more, u32s(1, 2, 3, 4)}, ErrReply},
		"known over said":          {[][]byte{more, u32s(3, 2, 10)}, ErrReply},
		"said over end":            {[][]byte{more, u32s(1, 11, 10)}, ErrReply},
		"a range over the prompt":  {[][]byte{more, u32s(1, 2, 101)}, ErrReply},
		"a range without end":      {[][]byte{more, u32s(0, 0, 1<<32-1)}, ErrReply},
	} {
		for kind, opts := range clientKinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				if kind == "pipeline" && name == "no kind" {
					t.Skip("an empty frame ends the envelope")
				}
				client := fakeClient(t, anchorsFake(anchorsReply(c.frames...), nil), append(opts, WithAnchors(1), WithTimeout(lookuptest.Patience))...)
				got, err := client.Lookup(background, 1600, netproto.NewHashes(lookuptest.Chain("a", 100, 32), 32))
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
					require.NoError(t, client.Ping(background), "the next call is as good as any")
					return
				}
				require.NoError(t, err)
				require.EqualValues(t, 1600, got.Tokens)
			})
		}
	}
	for name, frames := range map[string][][]byte{
		"stride 0": {params, u32s(0, 1)}, "unit 0": {params, u32s(1, 0)}, "short": {params, u32s(1)}, "long": {params, u32s(1, 1, 1)},
		"a hit": {hit, u32s(1600)}, "a hit of two numbers": {hit, u32s(1, 1)}, "a hit with boundaries": {hit, u32s(1, 1, 1)}, "alone": {params},
	} {
		client := fakeClient(t, anchorsFake(anchorsReply(frames...), nil, nil), WithAnchors(1))
		_, err := client.Lookup(background, 1600, netproto.NewHashes(lookuptest.Chain("a", 100, 32), 32))
		require.ErrorIs(t, err, ErrReply, name)
	}
}

// TestAnchorsThreeExchanges has a server never know enough: the third request has
// all hashes.
func TestAnchorsThreeExchanges(t *testing.T) {
	hashes := lookuptest.Chain("a", 100, 32)
	requests := 0
	ask := func(check func(r *fakeRequest), numbers ...uint32) func(r *fakeRequest) {
		return func(r *fakeRequest) {
			requests++
			check(r)
			anchorsReply([]byte{netproto.AnchorsMore}, u32s(numbers...))(r)
		}
	}
	client := fakeClient(t, anchorsFake(
		ask(func(r *fakeRequest) {
			if !bytes.Equal(r.frames[3], u32s(0, 9, 19, 29, 39, 49, 59, 69, 79, 89, 99)) || len(r.frames[4]) != 8*11 || len(r.frames[5]) != 32*11 {
				t.Errorf("the first request: %x", r.frames)
			}
		}, 30, 30, 55),
		ask(func(r *fakeRequest) {
			want := append(bytes.Clone(hashes[29*32:30*32]), hashes[30*32:55*32]...)
			if !bytes.Equal(r.frames[1][12:], u32s(30)) || !bytes.Equal(r.frames[3], u32s(29)) || !bytes.Equal(r.frames[5], want) {
				t.Errorf("the second request: %x", r.frames)
			}
		}, 31, 31, 60),
	), WithAnchors(1), WithTimeout(lookuptest.Patience))
	hit, err := client.Lookup(background, 1600, netproto.NewHashes(hashes, 32))
	require.NoError(t, err)
	require.EqualValues(t, 1600, hit.Tokens)
	require.Equal(t, 2, requests)
}

// TestAnchorsOldServer asks a server that knows nothing of anchors.
func TestAnchorsOldServer(t *testing.T) {
	for kind, opts := range clientKinds {
		t.Run(kind, func(t *testing.T) {
			asked := 0
			f := &fakeServer{}
			f.answer = func(r *fakeRequest) {
				if r.tag == "anchors" {
					asked++
					r.conn.send(netproto.AppendFailed(nil, r.envelope, netproto.ErrUnknownTag.Error()))
					return
				}
				r.reply()
			}
			client := fakeClient(t, f, append(opts, WithAnchors(1), WithTimeout(lookuptest.Patience))...)
			for range 10 {
				hit, err := client.Lookup(background, 1600, netproto.NewHashes(lookuptest.Chain("a", 100, 32), 32))
				require.NoError(t, err)
				require.EqualValues(t, 1600, hit.Tokens)
			}
			require.EqualValues(t, 1, f.dials.Load())
			require.Equal(t, 1, asked, "once a connection")
		})
	}
}

// TestAnchorsContext ends a lookup's context, or its client's time, between its
// exchanges.
func TestAnchorsContext(t *testing.T) {
	for kind, opts := range clientKinds {
		t.Run(kind, func(t *testing.T) {
			noLeaks(t)
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			client := fakeClient(t, anchorsFake(
				anchorsReply([]byte{netproto.AnchorsMore}, u32s(0, 0, 100)),
				func(*fakeRequest) { cancel() }, // and no answer
			), append(opts, WithAnchors(1), WithTimeout(lookuptest.Patience))...)
			_, err := client.Lookup(ctx, 1600, netproto.NewHashes(lookuptest.Chain("a", 100, 32), 32))
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, ErrNoAnswer)
			_, err = client.Lookup(ctx, 1600, netproto.NewHashes(lookuptest.Chain("a", 100, 32), 32))
			require.ErrorIs(t, err, context.Canceled, "before its first exchange")
			require.NoError(t, client.Ping(background))

			client = fakeClient(t, anchorsFake(
				anchorsReply([]byte{netproto.AnchorsMore}, u32s(0, 0, 100)), func(*fakeRequest) {},
			), append(opts, WithAnchors(1))...)
			client.timeout = 50 * time.Millisecond
			_, err = client.Lookup(background, 1600, netproto.NewHashes(lookuptest.Chain("a", 100, 32), 32))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		})
	}
}

// TestAnchorsFailOpen makes a lookup by anchors a miss where nobody answers.
func TestAnchorsFailOpen(t *testing.T) {
	client := fakeClient(t, &fakeServer{refuse: func() error { return lookuptest.ErrStore }}, WithAnchors(1), WithFailOpen())
	hit, err := client.Lookup(background, 1600, netproto.NewHashes(lookuptest.Chain("a", 100, 32), 32))
	require.ErrorIs(t, err, ErrFailedOpen)
	require.Zero(t, hit.Tokens)
}

// TestAnchorsOfManyClients has several clients store and ask while chains are
// evicted; a hit is never more than was stored of a prompt.
func TestAnchorsOfManyClients(t *testing.T) {
	s := startServer(t, blocks16, server.Limits{})
	const n = 300
	done := make(chan error, 4)
	for i := range 4 {
		go func() {
			done <- func() error {
				c, err := Dial(background, s.Addrs()[0], WithTimeout(lookuptest.Patience), WithAnchors(1))
				if err != nil {
					return err
				}
				defer c.Close()
				hashes, stored := lookuptest.Chain(fmt.Sprint("a", i), n, 32), 0
				rng := rand.New(rand.NewPCG(uint64(i), 1))
				for range scaled(300) {
					switch rng.IntN(4) {
					case 0:
						k := rng.IntN(n) + 1
						err, stored = c.StoreChain(background, netproto.GroupRank{}, 0, nil, netproto.NewHashes(hashes[:k*32], 32)), max(stored, k)
					case 1:
						k := rng.IntN(n)
						err, stored = c.Evict(background, netproto.GroupRank{}, netproto.NewHashes(hashes[k*32:(k+1)*32], 32)), min(stored, k)
					default:
						var hit api.Hit
						if hit, err = c.Lookup(background, 16*n, netproto.NewHashes(hashes, 32)); err == nil && hit.Tokens < int64(16*stored) {
							err = fmt.Errorf("%d tokens, of %d blocks in a row", hit.Tokens, stored)
						}
					}
					if err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range 4 {
		require.NoError(t, <-done)
	}
}

// TestAnchorsCountAsUse looks a prompt up by anchors, and stores more than fits
// beside it.
func TestAnchorsCountAsUse(t *testing.T) {
	for _, used := range []bool{true, false} {
		cfg := blocks16
		cfg.Memory.MaxEntries = 1000
		s := startServer(t, cfg, server.Limits{})
		c := dialAs(t, s.Addrs()[0], WithAnchors(1))
		hashes := lookuptest.Chain("a", 100, 32)
		lookuptest.StorePrefix(t, s.service, hashes, 100)
		for i := range 19 {
			if used {
				hit, err := c.Lookup(background, 1600, netproto.NewHashes(hashes, 32))
				require.NoError(t, err)
				require.EqualValues(t, 1600, hit.Tokens)
			}
			require.NoError(t, s.service.Store(t.Context(), netproto.GroupRank{}, netproto.NewHashes(lookuptest.Chain(fmt.Sprint("b", i), 50, 32), 32)))
		}
		hit, err := s.service.Lookup(t.Context(), 1600, netproto.NewHashes(hashes, 32))
		require.NoError(t, err)
		require.Equal(t, used, hit.Tokens == 1600, "%d tokens are left", hit.Tokens)
		if used {
			require.EqualValues(t, 19, s.Stat().Anchored)
		}
	}
}

// TestStoreChain stores a chain in two pieces, the second one first, in a group of
// larger chunks, over the wire and in process.
func TestStoreChain(t *testing.T) {
	hashes := lookuptest.Chain("a", 200, 32)
	s := startServer(t, lookup.ServiceConfig{Pool: lookuptest.AnchoredPools()["larger blocks"]}, server.Limits{})
	c := dialAs(t, s.Addrs()[0], WithAnchors(1))
	var keys []byte // of chunks of two hashes
	for i := 1; i < 200; i += 2 {
		keys = append(keys, hashes[i*32:(i+1)*32]...)
	}
	for name, store := range map[string]func(number uint32, before, keys []byte) error{
		"client": func(number uint32, before, keys []byte) error {
			return c.StoreChain(background, netproto.GroupRank{}, number, before, netproto.NewHashes(keys, 32))
		},
		"service": func(number uint32, before, keys []byte) error {
			return s.service.StoreChain(t.Context(), netproto.GroupRank{}, number, before, netproto.NewHashes(keys, 32))
		},
	} {
		require.NoError(t, s.service.Reset(t.Context()))
		require.NoError(t, store(60, keys[59*32:60*32], keys[60*32:]))
		require.NoError(t, store(0, nil, keys[:60*32]))
		before := s.Stat()
		hit, err := c.Lookup(background, 3200, netproto.NewHashes(hashes, 32))
		require.NoError(t, err)
		require.EqualValues(t, 3200, hit.Tokens)
		after := s.Stat()
		require.Equal(t, before.Anchored+1, after.Anchored, name)
		require.Equal(t, before.AnchoredUndetermined, after.AnchoredUndetermined, "%s: one exchange", name)
	}
	require.ErrorIs(t, c.StoreChain(background, netproto.GroupRank{}, 1, keys[:31], netproto.NewHashes(keys, 32)), ErrRequest)
	require.ErrorIs(t, c.StoreChain(background, netproto.GroupRank{}, 1, nil, netproto.NewHashes(keys[:31], 32)), ErrRequest)
	require.ErrorIs(t, c.StoreChain(background, netproto.GroupRank{Group: 7}, 1, keys[:32], netproto.NewHashes(keys, 32)), ErrRefused)
	require.ErrorIs(t, s.service.StoreChain(t.Context(), netproto.GroupRank{Group: 7}, 1, nil, netproto.NewHashes(keys, 32)), lookup.ErrGroupRank)
}

// TestAnchorsOneTimeout has a server take nearly all of a call's time for each of its
// exchanges: they have one time together.
func TestAnchorsOneTimeout(t *testing.T) {
	for kind, opts := range clientKinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const timeout = time.Second
				f := anchorsFake(anchorsReply([]byte{netproto.AnchorsMore}, u32s(0, 0, 100)), anchorsReply([]byte{netproto.AnchorsMore}, u32s(0, 0, 100)))
				f.pipes = true
				answer := f.answer
				f.answer = func(r *fakeRequest) {
					time.Sleep(timeout * 9 / 10)
					answer(r)
				}
				client := fakeClient(t, f, append(opts, WithAnchors(1), WithTimeout(timeout))...)
				begun := time.Now()
				_, err := client.Lookup(background, 1600, netproto.NewHashes(lookuptest.Chain("a", 100, 32), 32))
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.Equal(t, timeout, time.Since(begun))
			})
		})
	}
}

// TestAnchorsConnectionAfterUse looks what a connection keeps of a second request,
// which may hold nearly all hashes.
func TestAnchorsConnectionAfterUse(t *testing.T) {
	const n = 16384
	client := fakeClient(t, anchorsFake(
		anchorsReply([]byte{netproto.AnchorsMore}, u32s(0, 0, n)), anchorsReply([]byte{netproto.AnchorsHit}, u32s(16)),
	), WithAnchors(1), WithTimeout(lookuptest.Patience))
	_, err := client.Lookup(background, 16*n, netproto.NewHashes(lookuptest.Chain("a", n, 32), 32))
	require.NoError(t, err)
	require.LessOrEqual(t, cap(client.pool.idle[0].head), maxKeptBytes)
}

// TestAnchorsSecondReply has a server answer the second request what it should not.
func TestAnchorsSecondReply(t *testing.T) {
	more := []byte{netproto.AnchorsMore}
	client := fakeClient(t, anchorsFake(anchorsReply(more, u32s(0, 0, 100)), anchorsReply(more, u32s(0, 100))), WithAnchors(1), WithTimeout(lookuptest.Patience))
	_, err := client.Lookup(background, 1600, netproto.NewHashes(lookuptest.Chain("a", 100, 32), 32))
	require.ErrorIs(t, err, ErrReply)
}
