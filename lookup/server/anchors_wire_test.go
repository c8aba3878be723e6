package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/internal/anchorplan"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// TestAnchorsExample replays the example of docs/protocol.md.
func TestAnchorsExample(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	var hashes []byte
	for i := range byte(8) {
		hashes = append(hashes, 0xa0, 0xa1, 0xa2, i)
	}
	require.NoError(t, server.service.StoreChain(t.Context(), lookup.GroupRank{}, 0, nil, netproto.NewHashes(hashes[:6*4], 4)))
	p, exchanges := lookuptest.DialPeer(t, server.Addrs()[0]), 0
	for _, said := range wireExample(t, "## A lookup by anchors") {
		if said.client {
			_, err := p.Write(said.bytes)
			require.NoError(t, err)
			exchanges++
			continue
		}
		p.Reads(t, said.bytes)
	}
	require.Equal(t, 3, exchanges)
	hit, err := server.service.Lookup(t.Context(), 128, netproto.NewHashes(hashes, 4))
	require.NoError(t, err)
	require.EqualValues(t, 96, hit.Tokens)

	// The client's own bytes for the last request, which the text says how to make.
	var plan anchorplan.Plan
	plan.Begin(hashes, 4, 1, 1)
	plan.Anchors = netproto.Anchors{NumHashes: 8, Stride: 1}
	for _, at := range []uint32{0, 3, 7} {
		plan.Add(at)
	}
	require.NoError(t, plan.Narrow(hashes, anchorplan.More{Proven: 0, Claimed: 4, End: 8}))
	all := wireExample(t, "## A lookup by anchors")
	require.Equal(t, all[4].bytes, anchorsMessage(&plan, 128, 4))
}

// spoken is what one side says in an example.
type spoken struct {
	client bool
	bytes  []byte
}

// wireExample reads the lines of a section's indented blocks that begin with C or
// S, and those that go on from them: numbers in hex, JSON and quoted text up to three
// spaces, behind which they are explained.
func wireExample(t *testing.T, section string) (all []spoken) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/protocol.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(doc), section+"\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n## ")
	line := regexp.MustCompile(`^    (C  |S  |   )(\S.*)$`)
	for l := range strings.SplitSeq(text, "\n") {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		if m[1] != "   " {
			all = append(all, spoken{client: m[1] == "C  "})
		}
		if len(all) == 0 {
			continue
		}
		said, _, _ := strings.Cut(m[2], "   ")
		for word := range strings.FieldsSeq(said) {
			b := []byte(strings.Trim(word, `"`))
			if word[0] != '"' && word[0] != '{' {
				b, err = hex.DecodeString(word)
				require.NoError(t, err, l)
			}
			all[len(all)-1].bytes = append(all[len(all)-1].bytes, b...)
		}
	}
	return all
}

// anchorsMessage returns a request by anchors, from the first envelope frame on.
func anchorsMessage(plan *anchorplan.Plan, tokens uint32, hashLen int, envelope ...string) []byte {
	var env []byte
	for _, frames := range envelope {
		env = encodeEnvelope(frames)
	}
	return append(netproto.AppendAnchors(nil, env, tokens, &plan.Anchors, hashLen, len(plan.Blob)), plan.Blob...)
}

// anchorsReply is what came back for a request by anchors.
type anchorsReply struct {
	kind byte // 0 for a refusal
	hit  uint32
	more anchorplan.More
}

// askAnchors sends a request by anchors and returns its reply.
func askAnchors(t testing.TB, p *lookuptest.Peer, plan *anchorplan.Plan, tokens uint32) anchorsReply {
	t.Helper()
	_, err := p.Write(anchorsMessage(plan, tokens, 32))
	require.NoError(t, err)
	return anchorsReplyOf(t, p.Next(t))
}

func anchorsReplyOf(t testing.TB, frames [][]byte) (r anchorsReply) {
	t.Helper()
	require.Len(t, frames[0], 1)
	switch r.kind = frames[0][0]; r.kind {
	case netproto.StatusFailed:
	case netproto.AnchorsHit:
		require.True(t, netproto.ParseAnchorsReply(frames[1], &r.hit))
	case netproto.AnchorsMore:
		require.True(t, netproto.ParseAnchorsReply(frames[1], &r.more.Proven, &r.more.Claimed, &r.more.End))
	default:
		t.Fatalf("reply %x", frames)
	}
	return r
}

// TestAnchorsBetweenExchanges changes what is stored between the first request and
// the second.
func TestAnchorsBetweenExchanges(t *testing.T) {
	const n = 400
	hashes := lookuptest.Chain("a", n, 32)
	for name, change := range map[string]func(t *testing.T, s *lookup.Service, rng *rand.Rand){
		"nothing": func(*testing.T, *lookup.Service, *rand.Rand) {},
		"reset":   func(t *testing.T, s *lookup.Service, _ *rand.Rand) { require.NoError(t, s.Reset(t.Context())) },
		"evict": func(t *testing.T, s *lookup.Service, rng *rand.Rand) {
			lookuptest.EvictHash(t, s, 0, hashes, rng.IntN(n))
		},
		"evict an anchor": func(t *testing.T, s *lookup.Service, rng *rand.Rand) {
			lookuptest.EvictHash(t, s, 0, hashes, 20*(1+rng.IntN(n/20))-1)
		},
		"store all": func(t *testing.T, s *lookup.Service, _ *rand.Rand) { lookuptest.StorePrefix(t, s, hashes, n) },
		"reset and store others": func(t *testing.T, s *lookup.Service, rng *rand.Rand) {
			require.NoError(t, s.Reset(t.Context()))
			lookuptest.StorePrefix(t, s, hashes, rng.IntN(n))
		},
		"another end": func(t *testing.T, s *lookup.Service, _ *rand.Rand) {
			require.NoError(t, s.StoreChain(t.Context(), lookup.GroupRank{}, 0, nil, netproto.NewHashes(append(lookuptest.Chain("b", 50, 32), hashes[50*32:]...), 32)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, blocks16, Limits{})
			p, rng := lookuptest.DialPeer(t, server.Addrs()[0]), rand.New(rand.NewPCG(1, 3))
			determined := 0
			for round := range 60 {
				if round%3 == 0 {
					require.NoError(t, server.service.Reset(t.Context()))
					lookuptest.StorePrefix(t, server.service, hashes, 1+rng.IntN(n))
				}
				lookuptest.EvictHash(t, server.service, 0, hashes, rng.IntN(n))
				var plan anchorplan.Plan
				plan.Begin(hashes, 32, 1, 1)
				if rng.IntN(2) == 0 {
					plan.Digests = nil
				}
				for exchange := range 2 {
					r := askAnchors(t, p, &plan, 16*n)
					require.NotZero(t, r.kind)
					if r.kind == netproto.AnchorsHit {
						want, err := server.service.Lookup(t.Context(), 16*n, netproto.NewHashes(hashes, 32))
						require.NoError(t, err)
						require.EqualValues(t, want.Tokens, r.hit, "round %d, exchange %d", round, exchange)
						determined++
						break
					}
					require.NoError(t, plan.Narrow(hashes, r.more))
					change(t, server.service, rng)
				}
			}
			require.Positive(t, determined)
		})
	}
}

// TestAnchorsLies sends requests that are not true. They get an answer that full
// lookups would get too, a refusal, or are asked for more.
func TestAnchorsLies(t *testing.T) {
	const n = 200
	server := startServer(t, lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}}, Limits{})
	hashes, other, unsure := lookuptest.Chain("a", n, 32), lookuptest.Chain("b", n, 32), lookuptest.Chain("c", n, 32)
	honest := dialTest(t, server, client.WithAnchors(1))
	lookuptest.StorePrefix(t, server.service, unsure, n)
	for _, prompt := range [][]byte{hashes, other[:32*n/2]} {
		lookuptest.StorePrefix(t, server.service, prompt, len(prompt)/32)
		_, err := honest.Lookup(context.Background(), int64(len(prompt)/2), netproto.NewHashes(prompt, 32))
		require.NoError(t, err)
	}
	lookuptest.EvictHash(t, server.service, 0, hashes, 10) // what is behind it stays sure

	at := func(chain []byte, b int) []byte { return chain[b*32 : (b+1)*32] }
	for name, c := range map[string]struct {
		of, stride, first uint32
		numbers           []uint32
		blob              []byte
		digests           []uint64
		most              uint32 // hit in tokens
		kind              byte   // of the reply, 0 for a refusal
	}{
		"another number, lower":               {8, 1, 0, []uint32{7}, at(other, 50), nil, 0, netproto.AnchorsMore},
		"another number, higher":              {100, 1, 0, []uint32{99}, at(other, 50), nil, 0, netproto.AnchorsMore},
		"number 0":                            {1, 1, 0, []uint32{0}, at(other, 50), nil, 0, netproto.AnchorsMore},
		"behind a block that is gone":         {50, 1, 0, []uint32{49}, at(hashes, 49), nil, 0, netproto.AnchorsMore},
		"a number that ends there":            {40, 1, 0, []uint32{38}, at(hashes, 49), nil, 0, netproto.AnchorsMore},
		"the last number":                     {8, 1, 0, []uint32{1<<32 - 1}, at(hashes, 49), nil, 0, netproto.AnchorsMore},
		"numbers over the prompt":             {8, 1, 0, []uint32{8, 1<<32 - 1}, append(bytes.Clone(at(other, 8)), at(other, 9)...), nil, 0, netproto.AnchorsMore},
		"a hash that is nowhere":              {8, 1, 0, []uint32{0}, at(lookuptest.Chain("nowhere", 1, 32), 0), nil, 0, netproto.AnchorsHit},
		"one twice":                           {10, 1, 0, []uint32{3, 9}, append(bytes.Clone(at(other, 9)), at(other, 9)...), nil, 160, netproto.AnchorsHit},
		"digest 0":                            {10, 1, 0, []uint32{9}, at(unsure, 9), []uint64{0}, 0, netproto.AnchorsMore},
		"the digest of others":                {10, 1, 0, []uint32{9}, at(unsure, 9), []uint64{netproto.Digest(hashes[:320])}, 0, netproto.AnchorsMore},
		"its own digest":                      {10, 1, 0, []uint32{9}, at(other, 9), []uint64{netproto.Digest(other[:320])}, 160, netproto.AnchorsHit},
		"first behind what is known":          {100, 1, 60, []uint32{9}, append(bytes.Clone(at(other, 9)), other[60*32:]...), nil, 0, netproto.AnchorsMore},
		"first in front of what is known":     {100, 1, 5, []uint32{9}, append(bytes.Clone(at(other, 9)), hashes[5*32:]...), nil, 0, netproto.AnchorsMore},
		"the last first":                      {100, 1, 1<<32 - 1, []uint32{9}, append(bytes.Clone(at(other, 9)), hashes...), nil, 0, netproto.AnchorsMore},
		"more hashes than the prompt":         {10, 1, 0, nil, hashes, nil, 160, netproto.AnchorsHit},
		"fewer hashes than the prompt":        {2097152, 1, 0, nil, at(hashes, 0), nil, 0, netproto.AnchorsMore},
		"hashes of another chain behind":      {100, 1, 10, []uint32{9}, append(bytes.Clone(at(other, 9)), hashes[20*32:60*32]...), nil, 160 + 40*16, netproto.AnchorsMore},
		"the same, and the prompt ends there": {50, 1, 10, []uint32{9}, append(bytes.Clone(at(other, 9)), hashes[20*32:60*32]...), nil, 160 + 40*16, netproto.AnchorsHit},
		"too many hashes":                     {2097153, 1, 0, []uint32{9}, at(other, 9), nil, 0, 0},
		"all hashes there may be":             {1<<32 - 1, 1, 0, []uint32{9}, at(other, 9), nil, 0, 0},
		"stride 0":                            {10, 0, 0, []uint32{9}, at(other, 9), nil, 0, 0},
		"stride 2":                            {10, 2, 0, []uint32{9}, at(other, 9), nil, 0, 0},
		"the last stride":                     {10, 1<<32 - 1, 0, []uint32{9}, at(other, 9), nil, 0, 0},
		"nothing at all":                      {10, 1, 0, nil, nil, nil, 0, netproto.AnchorsMore},
	} {
		t.Run(name, func(t *testing.T) {
			p := lookuptest.DialPeer(t, server.Addrs()[0])
			plan := anchorplan.Plan{Blob: c.blob}
			plan.NumHashes, plan.Stride, plan.First = c.of, c.stride, c.first
			for _, b := range c.numbers {
				plan.Add(b)
			}
			for _, d := range c.digests {
				plan.AddDigest(d)
			}
			r := askAnchors(t, p, &plan, 16*n)
			require.Equal(t, c.kind, r.kind)
			require.LessOrEqual(t, r.hit, c.most)
			require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil), "the connection goes on")
			for _, prompt := range [][]byte{hashes, other} {
				want, err := server.service.Lookup(t.Context(), 16*n, netproto.NewHashes(prompt, 32))
				require.NoError(t, err)
				got, err := honest.Lookup(context.Background(), 16*n, netproto.NewHashes(prompt, 32))
				require.NoError(t, err)
				require.Equal(t, want.Tokens, got.Tokens, "others are told the truth")
			}
		})
	}
}

// TestAnchorsRefusedOnTheWire sends what cannot be served; the connection goes on.
func TestAnchorsRefusedOnTheWire(t *testing.T) {
	server := startServer(t, blocks16, Limits{MaxHashes: 100})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	hashes := lookuptest.Chain("a", 3, 32)
	good := [][]byte{[]byte("anchors"), u32s(160, 10, 1, 0), {0, 32}, u32s(1, 5), nil, hashes[:64]}
	for name, c := range map[string]struct {
		frame  int
		body   []byte
		reason string
	}{
		"params":      {1, u32s(160, 10, 1), "anchors params"},
		"tokens":      {1, u32s(161, 10, 1, 0), "not a multiple of 16"},
		"hashes":      {1, u32s(160, 101, 1, 0), "101, the limit is 100"},
		"stride":      {1, u32s(160, 10, 3, 0), "blocks of 3 hashes, they have 1 here"},
		"hash length": {2, []byte{0, 65}, "hash length"},
		"numbers":     {3, u32s(5, 1), "ascending"},
		"digests":     {4, u32s(1, 2), "8 bytes an anchor"},
		"no hashes":   {5, nil, "fewer hashes than anchors"},
		"a cut hash":  {5, hashes[:65], "whole number"},
	} {
		frames := append([][]byte(nil), good...)
		frames[c.frame] = c.body
		reply := p.Ask(t, frames...)
		require.Len(t, reply, 2, name)
		require.Equal(t, []byte{0}, reply[0], name)
		require.Contains(t, string(reply[1]), c.reason, name)
	}
	require.Equal(t, [][]byte{{0}, []byte("more frames than the request has")}, p.Ask(t, append(append([][]byte(nil), good...), nil)...))
	require.Equal(t, netproto.AnchorsMore, int(anchorsReplyOf(t, p.Ask(t, good...)).kind), "the same without a mistake")
	require.EqualValues(t, 10, server.Stat().Failed)
}

// TestAnchorsOverZMTP asks by anchors as a DEALER.
func TestAnchorsOverZMTP(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	hashes := lookuptest.Chain("a", 100, 32)
	lookuptest.StorePrefix(t, server.service, hashes, 100)
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	_, err := p.Write(append(bytes.Clone(zmtpGreeting), "\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"...))
	require.NoError(t, err)
	p.Reads(t, zmtpAnswer)
	ask := func(shape []byte, rest ...[]byte) [][]byte {
		frames := append([][]byte{[]byte("id"), {7}, nil, []byte("anchors"), shape, {0, 32}}, rest...)
		reply := p.Ask(t, frames...)
		require.Equal(t, [][]byte{[]byte("id"), {7}, {}}, reply[:3])
		return reply[3:]
	}
	require.Equal(t, [][]byte{{netproto.AnchorsParams}, u32s(1, 1)}, ask(u32s(0, 0, 0, 0), nil, nil, nil))
	require.Equal(t, [][]byte{{netproto.AnchorsMore}, u32s(0, 100, 100)}, ask(u32s(1600, 100, 1, 0), u32s(99), nil, hashes[99*32:]))
	require.Equal(t, [][]byte{{netproto.AnchorsHit}, u32s(1600)}, ask(u32s(1600, 100, 1, 0), nil, nil, hashes))
	require.Equal(t, [][]byte{{netproto.AnchorsHit}, u32s(1600)}, ask(u32s(1600, 100, 1, 0), u32s(99), nil, hashes[99*32:]))
	require.Equal(t, [][]byte{{0}}, ask(u32s(1600, 100, 2, 0), nil, nil, hashes))
}

// TestAnchorsDoNotAllocate runs whole requests through a session.
func TestAnchorsDoNotAllocate(t *testing.T) {
	if bufpool.Debug || lookuptest.Race {
		t.Skip("the traps of debug builds and the race detector allocate")
	}
	const n = 8192
	hashes := lookuptest.Chain("a", n, 32)
	for name, c := range map[string]struct {
		stored int
		digest bool
	}{"all": {n, false}, "all, with digests": {n, true}, "cut": {n - 1000, true}} {
		server := unstarted(t)
		lookuptest.StorePrefix(t, server.service, hashes, c.stored)
		var plan anchorplan.Plan
		plan.Begin(hashes, 32, 1, 1)
		if !c.digest {
			plan.Digests = nil
		}
		message := func() []byte { return anchorsMessage(&plan, 16*n, 32, "\x00id") }
		var got replies
		ses := openSession(server, &got, nil)
		first := message()
		require.NoError(t, ses.receive(first))
		last := first
		if got.last[len(encodeEnvelope("\x00id"))+2] == netproto.AnchorsMore {
			var more anchorplan.More
			numbers := got.last[len(got.last)-12:]
			require.True(t, netproto.ParseAnchorsReply(numbers, &more.Proven, &more.Claimed, &more.End))
			require.NoError(t, plan.Narrow(hashes, more))
			last = message()
		}
		round := func() {
			for _, msg := range [][]byte{first, last} {
				for p := msg; len(p) > 0; {
					n := min(len(p), 4001) // odd, so that hashes are cut
					if err := ses.receive(p[:n]); err != nil {
						t.Fatal(err)
					}
					p = p[n:]
				}
			}
		}
		round()
		require.Equal(t, u32s(uint32(16*c.stored)), got.last[len(got.last)-4:], name)
		require.Zero(t, testing.AllocsPerRun(100, round), name)
	}
}

func u32s(numbers ...uint32) (b []byte) {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}
