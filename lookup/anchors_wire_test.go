package lookup

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// TestAnchorsExample replays the example of docs/protocol.md.
func TestAnchorsExample(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	var hashes []byte
	for i := range byte(8) {
		hashes = append(hashes, 0xa0, 0xa1, 0xa2, i)
	}
	require.NoError(t, server.service.StoreChain(Place{}, 0, nil, hashes[:6*4], 4))
	p, exchanges := dialPeer(t, server), 0
	for _, said := range wireExample(t, "## A lookup by anchors") {
		if said.client {
			_, err := p.Write(said.bytes)
			require.NoError(t, err)
			exchanges++
			continue
		}
		p.reads(t, said.bytes)
	}
	require.Equal(t, 3, exchanges)
	hit, err := server.service.Lookup(128, netproto.NewHashes(hashes, 4))
	require.NoError(t, err)
	require.EqualValues(t, 96, hit)

	// The client's own bytes for the last request, which the text says how to make.
	call := anchorsCall{hashes: hashes, hashLen: 4, stride: 1}
	call.start()
	call.NumHashes, call.Stride = 8, 1
	for _, at := range []int{0, 3, 7} {
		call.anchor(at)
	}
	require.NoError(t, call.narrow(anchorsMore{known: 0, said: 4, end: 8}))
	all := wireExample(t, "## A lookup by anchors")
	require.Equal(t, all[4].bytes, append(netproto.AppendAnchors(nil, nil, 128, &call.Anchors, 4, len(call.blob)), call.blob...))
}

// TestAnchorsTurn has many requests by anchors come at once: when the connection's
// turn has lasted long enough, the rest of them are refused.
func TestAnchorsTurn(t *testing.T) {
	server := unstarted(t)
	hashes := chain("a", 8, 32)
	require.NoError(t, server.service.StoreChain(Place{}, 0, nil, hashes, 32))
	call := anchorsCall{hashes: hashes, hashLen: 32, stride: 1}
	call.begin(1)
	msg := append(netproto.AppendAnchors(nil, nil, 128, &call.Anchors, 32, len(call.blob)), call.blob...)
	hit := netproto.AppendAnchorsReply(nil, nil, netproto.AnchorsHit, 128)
	refused := netproto.AppendFailed(nil, nil, errTurnOver.Error())
	for patience, want := range map[time.Duration][]byte{
		time.Hour: bytes.Repeat(hit, 3),
		0:         slices.Concat(hit, refused, refused),
	} {
		server.walkPatience = patience
		var got replies
		ses := newSession(server, &got)
		for range 2 { // the next turn is a new one
			require.NoError(t, ses.receive(bytes.Repeat(msg, 3)))
			require.Equal(t, want, got.last)
		}
	}
}

// spoken is what one side says in an example.
type spoken struct {
	client bool
	bytes  []byte
}

// wireExample reads the lines of a section's indented blocks that begin with C or
// S, and those that go on from them: numbers in hex and quoted text up to three
// spaces, behind which they are explained.
func wireExample(t *testing.T, section string) (all []spoken) {
	t.Helper()
	doc, err := os.ReadFile("../docs/protocol.md")
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
			if word[0] != '"' {
				b, err = hex.DecodeString(word)
				require.NoError(t, err, l)
			}
			all[len(all)-1].bytes = append(all[len(all)-1].bytes, b...)
		}
	}
	return all
}

// send sends a request by anchors and returns its reply.
func (call *anchorsCall) send(t testing.TB, p *peer, tokens uint32) anchorsFrame {
	t.Helper()
	_, err := p.Write(append(netproto.AppendAnchors(nil, nil, tokens, &call.Anchors, call.hashLen, len(call.blob)), call.blob...))
	require.NoError(t, err)
	return frameOf(t, p.next(t))
}

// frameOf returns a reply, whose kind is 0 for a refusal.
func frameOf(t testing.TB, frames [][]byte) (f anchorsFrame) {
	t.Helper()
	if refusal(frames) != nil {
		return f
	}
	require.NoError(t, f.take(frames, []byte{netproto.AnchorsHit, netproto.AnchorsMore, netproto.AnchorsParams}))
	return f
}

// TestAnchorsBetweenExchanges changes what is stored between the first request and
// the second.
func TestAnchorsBetweenExchanges(t *testing.T) {
	const n = 400
	hashes := chain("a", n, 32)
	for name, change := range map[string]func(t *testing.T, s *Service, rng *rand.Rand){
		"nothing": func(*testing.T, *Service, *rand.Rand) {},
		"reset":   func(t *testing.T, s *Service, _ *rand.Rand) { require.NoError(t, s.Reset()) },
		"evict": func(t *testing.T, s *Service, rng *rand.Rand) {
			evictHash(t, s, 0, hashes, rng.IntN(n))
		},
		"evict an anchor": func(t *testing.T, s *Service, rng *rand.Rand) {
			evictHash(t, s, 0, hashes, 20*(1+rng.IntN(n/20))-1)
		},
		"store all": func(t *testing.T, s *Service, _ *rand.Rand) { storePrefix(t, s, hashes, n) },
		"reset and store others": func(t *testing.T, s *Service, rng *rand.Rand) {
			require.NoError(t, s.Reset())
			storePrefix(t, s, hashes, rng.IntN(n))
		},
		"another end": func(t *testing.T, s *Service, _ *rand.Rand) {
			require.NoError(t, s.StoreChain(Place{}, 0, nil, append(chain("b", 50, 32), hashes[50*32:]...), 32))
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, blocks16, Limits{})
			p, rng := dialPeer(t, server), rand.New(rand.NewPCG(1, 3))
			determined := 0
			for round := range 60 {
				if round%3 == 0 {
					require.NoError(t, server.service.Reset())
					storePrefix(t, server.service, hashes, 1+rng.IntN(n))
				}
				evictHash(t, server.service, 0, hashes, rng.IntN(n))
				call := &anchorsCall{hashes: hashes, hashLen: 32, stride: 1}
				call.begin(1)
				if rng.IntN(2) == 0 {
					call.Digests = nil
				}
				for exchange := range 2 {
					f := call.send(t, p, 16*n)
					hit, more, err := f.answer()
					require.NoError(t, err)
					if !more.asked {
						want, err := server.service.Lookup(16*n, netproto.NewHashes(hashes, 32))
						require.NoError(t, err)
						require.EqualValues(t, want, hit, "round %d, exchange %d", round, exchange)
						determined++
						break
					}
					require.NoError(t, call.narrow(more))
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
	server := startServer(t, ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}}, Limits{})
	hashes, other, unsure := chain("a", n, 32), chain("b", n, 32), chain("c", n, 32)
	honest := dialAs(t, server.Addrs()[0], WithAnchors(1))
	storePrefix(t, server.service, unsure, n)
	for _, prompt := range [][]byte{hashes, other[:32*n/2]} {
		storePrefix(t, server.service, prompt, len(prompt)/32)
		_, err := honest.Lookup(background, uint32(len(prompt)/2), prompt, 32)
		require.NoError(t, err)
	}
	evictHash(t, server.service, 0, hashes, 10) // what is behind it stays sure

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
		"a hash that is nowhere":              {8, 1, 0, []uint32{0}, at(chain("nowhere", 1, 32), 0), nil, 0, netproto.AnchorsHit},
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
			p := dialPeer(t, server)
			call := &anchorsCall{hashLen: 32, blob: c.blob}
			call.NumHashes, call.Stride, call.First = c.of, c.stride, c.first
			for _, b := range c.numbers {
				call.Add(b)
			}
			for _, d := range c.digests {
				call.AddDigest(d)
			}
			f := call.send(t, p, 16*n)
			require.Equal(t, c.kind, f.kind)
			if c.kind == netproto.AnchorsHit {
				hit, _, err := f.answer()
				require.NoError(t, err)
				require.LessOrEqual(t, hit, uint64(c.most))
			}
			require.Equal(t, [][]byte{{1}}, p.ask(t, []byte("ping")), "the connection goes on")
			for _, prompt := range [][]byte{hashes, other} {
				want, err := server.service.Lookup(16*n, netproto.NewHashes(prompt, 32))
				require.NoError(t, err)
				got, err := honest.Lookup(background, 16*n, prompt, 32)
				require.NoError(t, err)
				require.Equal(t, want, got, "others are told the truth")
			}
		})
	}
}

// TestAnchorsRefusedOnTheWire sends what cannot be served; the connection goes on.
func TestAnchorsRefusedOnTheWire(t *testing.T) {
	server := startServer(t, blocks16, Limits{MaxHashes: 100})
	p := dialPeer(t, server)
	hashes := chain("a", 3, 32)
	good := [][]byte{[]byte("anchors"), u32s(160, 10, 1, 0), {0, 32}, u32s(1, 5), nil, hashes[:64]}
	for name, c := range map[string]struct {
		frame  int
		body   []byte
		reason string
	}{
		"shape":       {1, u32s(160, 10, 1), "shape of anchors"},
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
		reply := p.ask(t, frames...)
		require.Len(t, reply, 2, name)
		require.Equal(t, []byte{0}, reply[0], name)
		require.Contains(t, string(reply[1]), c.reason, name)
	}
	require.Equal(t, [][]byte{{0}, []byte("more frames than the request has")}, p.ask(t, append(append([][]byte(nil), good...), nil)...))
	require.Equal(t, netproto.AnchorsMore, int(frameOf(t, p.ask(t, good...)).kind), "the same without a mistake")
	require.EqualValues(t, 10, server.Stat().Failed)
}

// TestAnchorsOverZMTP asks by anchors as a DEALER.
func TestAnchorsOverZMTP(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	hashes := chain("a", 100, 32)
	storePrefix(t, server.service, hashes, 100)
	p := dialPeer(t, server)
	_, err := p.Write(append(bytes.Clone(zmtpGreeting), "\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"...))
	require.NoError(t, err)
	p.reads(t, zmtpAnswer)
	ask := func(shape []byte, rest ...[]byte) [][]byte {
		frames := append([][]byte{[]byte("id"), {7}, nil, []byte("anchors"), shape, {0, 32}}, rest...)
		reply := p.ask(t, frames...)
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
	if bufpool.Debug || raceEnabled {
		t.Skip("the traps of debug builds and the race detector allocate")
	}
	const n = 8192
	hashes := chain("a", n, 32)
	for name, c := range map[string]struct {
		stored int
		digest bool
	}{"all": {n, false}, "all, with digests": {n, true}, "cut": {n - 1000, true}} {
		server := unstarted(t)
		storePrefix(t, server.service, hashes, c.stored)
		call := &anchorsCall{hashes: hashes, hashLen: 32, stride: 1}
		call.begin(1)
		if !c.digest {
			call.Digests = nil
		}
		message := func() []byte {
			return append(netproto.AppendAnchors(nil, encodeEnvelope("\x00id"), 16*n, &call.Anchors, 32, len(call.blob)), call.blob...)
		}
		var got replies
		ses := newSession(server, &got)
		first := message()
		require.NoError(t, ses.receive(first))
		last := first
		if got.last[len(encodeEnvelope("\x00id"))+2] == netproto.AnchorsMore {
			var more anchorsMore
			numbers := got.last[len(got.last)-12:]
			require.True(t, netproto.ParseAnchorsReply(numbers, &more.known, &more.said, &more.end))
			require.NoError(t, call.narrow(more))
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

// TestAnchorsKeepLittle asks by as many anchors as there may be, and looks at what
// the pooled query keeps.
func TestAnchorsKeepLittle(t *testing.T) {
	service, err := NewService(ServiceConfig{Pool: anchoredPools()["hybrid"]})
	require.NoError(t, err)
	server, err := NewServer(service, ServerConfig{})
	require.NoError(t, err)
	hashes := chain("a", 4*netproto.MaxAnchors, 32)
	storePrefix(t, server.service, hashes, len(hashes)/32) // of another coverage each
	call := &anchorsCall{hashes: hashes, hashLen: 32, stride: 1}
	call.start()
	call.NumHashes, call.Stride = uint32(len(hashes)/32), 1
	for i := range netproto.MaxAnchors {
		call.anchor(4*i + 3)
	}
	call.addDigests(0)
	q := server.service.queries.New().(*query)
	r := netproto.Request{NumTokens: uint64(len(hashes) / 2), HashLen: 32, NumHashes: netproto.MaxAnchors, Anchors: call.Anchors}
	require.NoError(t, q.beginAnchors(&r))
	q.addAnchors(call.blob)
	require.LessOrEqual(t, cap(q.anchored.trail.Runs), 256, "a request that is not finished")
	a, err := q.finishAnchors()
	require.NoError(t, err)
	require.True(t, a.determined)
	require.EqualValues(t, len(hashes)/2, a.hit)
	q.release()
	require.LessOrEqual(t, cap(q.anchored.keys), keepAnchors)
	require.Nil(t, q.anchored.request)
}
