package server

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// tokensAfter returns where the tokens went of all that a server was asked for, once it has stopped. Places of 0 are left out.
func tokensAfter(t *testing.T, server *Server) map[string]int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), lookuptest.Patience)
	defer cancel()
	require.NoError(t, server.Shutdown(ctx))
	return tokensNow(server)
}

func tokensNow(server *Server) map[string]int64 {
	got := map[string]int64{}
	for place, n := range server.Stat().Tokens {
		if n != 0 {
			got[place] = n
		}
	}
	return got
}

// lookupFrom returns a lookup of a prompt's hashes from a block on.
func lookupFrom(tokens, block int, hashes []byte) []byte {
	hashes = hashes[32*block:]
	return append(netproto.AppendLookupFrom(nil, nil, netproto.TagLookupFrom, uint32(tokens), uint32(16*block), 32, len(hashes)), hashes...)
}

// maxAsking is less than the time after which an equal prompt is another request.
const maxAsking = 1500 * time.Millisecond

// The tokens of all requests have a place, whatever is asked in whatever way: those that engines hold, those of the pool, and
// the sum are what the client counts.
func TestTokensAreAccountedFor(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server := startWith(t, store, Settings{})
		random := rand.New(rand.NewPCG(21, 22))
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		type request struct {
			tokens int
			name   int
		}
		type last struct{ start, total, hit int64 }
		asked := map[request]last{}
		hashless := int64(0)
		began := time.Now()
		for i := 0; i < 3_000 && time.Since(began) < maxAsking; i++ {
			name := random.IntN(200)
			hashes := lookuptest.Chain(string(rune('A'+name)), 1+name%90, 32)
			n := len(hashes) / 32
			tokens := 16 * (n + random.IntN(3))
			block := random.IntN(n + 1)
			switch random.IntN(8) {
			case 0:
				p.Send(t, storeOf("", netproto.TagStore, hashes[:32*max(block, 1)]))
				p.Expect(t, "01")
				continue
			case 1: // no load follows it, so it counts nowhere
				p.Send(t, rawExplain(hashes, 32))
				p.Next(t)
				continue
			case 2: // it is malformed
				p.Send(t, plainOf("", netproto.TagLookup, []byte{1}))
				p.Next(t)
				continue
			case 3:
				p.Send(t, netproto.AppendLookup(nil, nil, uint32(tokens), 32, 0))
				p.Expect(t, hitText(0))
				hashless += int64(min(tokens, 16))
				continue
			case 4:
				block = 0
			}
			p.Send(t, lookupFrom(tokens, block, hashes))
			frame := p.Next(t)[0]
			require.Len(t, frame, 4)
			hit := int64(frame[0])<<24 | int64(frame[1])<<16 | int64(frame[2])<<8 | int64(frame[3])
			if total := int64(min(tokens, 16*n+16)); block == n { // no hash tells its request from others
				hashless += total
			} else {
				asked[request{tokens, name}] = last{int64(16 * block), total, max(hit, int64(16*block))}
			}
		}
		got := tokensAfter(t, server)
		total, sum, fromPool := hashless, int64(0), int64(0)
		for _, of := range asked {
			total += of.total
			fromPool += of.hit - of.start
		}
		for _, n := range got {
			require.Positive(t, n)
			sum += n
		}
		require.Equal(t, total, sum, "%v", got)
		require.Equal(t, fromPool, got["pool"])
		require.Positive(t, got["engine"])
		require.Positive(t, got["new"])
	})
}

// A lookup whose peer does not wait for its reply has no answer, nor has one that is refused for want of room, or that the store
// answers too late.
func TestNoAnswer(t *testing.T) {
	keys, others := lookuptest.Chain("a", 8, 32), lookuptest.Chain("b", 4, 32)
	for name, end := range map[string]func(p *lookuptest.Peer) error{
		"closed": func(p *lookuptest.Peer) error { return p.Close() },
		"reset": func(p *lookuptest.Peer) error {
			_ = p.Conn.(*net.TCPConn).SetLinger(0)
			return p.Close()
		},
		"FIN": func(p *lookuptest.Peer) error { return p.Conn.(*net.TCPConn).CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			store, g := lookuptest.Filled(t, keys), lookuptest.NewGate()
			store.Holding(g, "exists", "")
			server := startRemote(t, store, patient, Limits{})
			p := lookuptest.DialPeer(t, server.Addrs()[0])
			p.Send(t, lookupOf("", keys), lookupOf("", others))
			lookuptest.Eventually(t, "both wait for the store", func() bool { return server.Stat().InFlight == 2 })
			require.NoError(t, end(p))
			lookuptest.Eventually(t, "it is seen", func() bool { return server.numHalfClosed() == 1 || server.Stat().Connections == 0 })
			close(g.Open)
			require.Equal(t, map[string]int64{"no_answer": 12 * 16}, tokensAfter(t, server))
		})
	}
	t.Run("late", func(t *testing.T) {
		store, g := lookuptest.Filled(t, keys), lookuptest.NewGate()
		store.Holding(g, "exists", "")
		defer close(g.Open)
		server := startRemote(t, store, lookup.RemoteConfig{Timeout: 50 * time.Millisecond}, Limits{})
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		p.Send(t, lookupOf("", keys))
		p.Expect(t, hitText(0))
		require.Equal(t, map[string]int64{"no_answer": 128}, tokensAfter(t, server))
	})
	t.Run("busy", func(t *testing.T) {
		store, g := lookuptest.Filled(t, keys), lookuptest.NewGate()
		store.Holding(g, "exists", "")
		server := startRemote(t, store, patient, Limits{MaxInFlight: 1})
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		p.Send(t, lookupOf("a", keys))
		lookuptest.Eventually(t, "it waits for the store", func() bool { return server.Stat().InFlight == 1 })
		p.Send(t, lookupOf("b", others))
		p.Expect(t, "b 00")
		p.Send(t, netproto.AppendLookupFrom(nil, idEnvelope("c"), netproto.TagLookupFrom, 16, 1<<20, 32, 0)) // it counts nowhere
		p.Expect(t, "c 00")
		close(g.Open)
		p.Expect(t, "a "+hitText(8))
		require.Equal(t, map[string]int64{"pool": 128, "no_answer": 64}, tokensAfter(t, server))
	})
}

// What a reset or an evict by request has taken is told apart from what the index has evicted, and from what another request has
// missed since.
func TestEmptied(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	for name, empty := range map[string][]byte{"reset": plainOf("", netproto.TagReset), "evict": storeOf("", netproto.TagEvict, keys)} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
				server := startWith(t, store, Settings{})
				p := lookuptest.DialPeer(t, server.Addrs()[0])
				p.Send(t, storeOf("", netproto.TagStore, keys), lookupOf("", keys), empty)
				p.Expect(t, "01", hitText(8), "01")
				lookuptest.Eventually(t, "the first request is closed", func() bool { return tokensNow(server)["pool"] == 128 })
				p.Send(t, lookupOf("", keys))
				p.Expect(t, hitText(0))
				require.Equal(t, map[string]int64{"pool": 128, "emptied": 128}, tokensAfter(t, server))
			})
		})
	}
}

// Over a store it is looked for what engines have saved: on all ranks, on one, or not at all.
func TestLooks(t *testing.T) {
	store := &lookuptest.KeyStore{}
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16, TPSize: 2, NumKVHead: 2}, Backend: store, Remote: patient})
	require.NoError(t, err)
	server, err := New(service, Config{Listeners: []Listener{{Address: "tcp://127.0.0.1:0"}}, FirstLook: time.Millisecond, SecondLook: time.Millisecond})
	require.NoError(t, err)
	startTest(t, server)
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	ask := func(name string) []byte {
		p.Send(t, lookupOf("", lookuptest.Chain(name, 8, 32)))
		p.Expect(t, hitText(0))
		return lookuptest.Chain(name, 8, 32)
	}
	saved, partial := coordinator.NewHashes(ask("saved"), 32), coordinator.NewHashes(ask("partial"), 32)
	ask("unsaved")
	for rank := range uint16(2) {
		require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{TPRank: rank}, saved))
	}
	require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{TPRank: 1}, partial))
	lookuptest.Eventually(t, "the looks are over", func() bool { return server.Stat().LookedKeys == 4*2*4 })
	for rank := range uint16(2) {
		require.NoError(t, service.Evict(t.Context(), coordinator.GroupRank{TPRank: rank}, saved))
	}
	for _, name := range []string{"saved", "partial", "unsaved"} {
		ask(name)
	}
	require.Equal(t, map[string]int64{"new": 3 * 128, "evicted": 128, "partial": 128, "unsaved": 128}, tokensAfter(t, server))
}

// accountReaders are peers, and whether the server knows them: they are of this machine, or have a credential.
var accountReaders = []struct {
	peer       net.Addr
	credential *access.Credential
	known      bool
}{
	{&net.UnixAddr{Net: "unix"}, nil, true},
	{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, nil, true},
	{&net.TCPAddr{IP: net.IPv6loopback}, nil, true},
	{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, nil, false},
	{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, &access.Credential{Name: "token"}, true},
	{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, &access.Credential{Name: "certificate", Certificate: "engine.example.com"}, true},
	{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, &access.Credential{Name: "tenant", Pools: []string{""}}, true},
}

// Places and times of a single prompt are told to peers that the server knows.
func TestAccountOfStrangers(t *testing.T) {
	server := unstarted(t)
	keys := lookuptest.Chain("a", 8, 32)
	service := server.pools.own.service
	require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	for _, of := range accountReaders {
		d := drive(t, server)
		d.session.conn.peer, d.session.credential = of.peer, of.credential
		require.NoError(t, serveTurn(d.session, bytes.Join([][]byte{rawLookup(keys, 32), plainOf("", netproto.TagReset), rawExplain(keys, 32)}, nil)))
		for d.got.count(t) < 3 {
			d.next(t)
		}
		var e api.Explanation
		_, text, _ := bytes.Cut(d.got.Bytes(), []byte(`{"start_tokens"`))
		require.NoError(t, json.Unmarshal(append([]byte(`{"start_tokens"`), text...), &e))
		require.NotNil(t, e.Account)
		want := "missing"
		if of.known {
			want = "emptied"
		}
		require.Equal(t, map[string]int64{want: 128}, e.Account.Tokens, "%+v", of)
		require.Equal(t, of.known, e.Account.Place == "emptied", "%+v", of)
		require.False(t, e.Account.RemembersSince.IsZero())
		for _, at := range []time.Time{e.Account.AskedAt, e.Account.WholeAt, e.Account.RemembersSince} {
			require.True(t, of.known || at.Equal(at.Truncate(10*time.Minute)), "%+v %v", of, at)
		}
	}
}

// A block that one group alone has lost is evicted, if the group was whole before, although others hold it all.
func TestEvictedFromAWindow(t *testing.T) {
	hashes := lookuptest.Chain("a", 100, 32)
	pool := coordinator.Pool{VLLM: "0.33.0", HashBlockSize: 16, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 65},
	}}
	store := &lookuptest.KeyStore{}
	server := startServer(t, lookup.ServiceConfig{Pool: pool, Backend: store, Remote: patient}, Limits{})
	coord := server.pools.own.service.Coordinator()
	keyOf := func(group, block int) string {
		return coord.KeyPrefix(group, coord.Ranks(group)[0]) + hex.EncodeToString(hashes[32*block:32*block+32])
	}
	for block := range 100 {
		require.NoError(t, store.Store(t.Context(), []string{keyOf(0, block), keyOf(1, block)}))
	}
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	ask := func() []byte { // a token more than the blocks, so that all may be hit
		return append(netproto.AppendLookup(nil, nil, 1601, 32, len(hashes)), hashes...)
	}
	p.Send(t, ask())
	require.Equal(t, []byte{0, 0, 6, 64}, p.Next(t)[0][:4], "1600 tokens")
	lookuptest.Eventually(t, "the first request is closed", func() bool { return tokensNow(server)["pool"] == 1600 })
	require.NoError(t, store.Evict(t.Context(), []string{keyOf(1, 97)}))
	p.Send(t, ask())
	require.Equal(t, []byte{0, 0, 6, 16}, p.Next(t)[0][:4], "1552 tokens")
	require.Equal(t, map[string]int64{"pool": 1600 + 1552, "evicted": 48, "rules": 2}, tokensAfter(t, server))
}

// Processes of one host are told apart if they say who they are, also after they have connected anew. Peers that the server
// does not know are not told of them.
func TestAskersOfOneHost(t *testing.T) {
	server := startWith(t, nil, Settings{})
	for _, process := range []string{"one", "two", "one"} {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		p.Ask(t, []byte("pool"), []byte(`{"name":"","client":{"process":"`+process+`"}}`))
		p.Send(t, rawLookup(lookuptest.Chain("a", 8, 32), 32))
		p.Expect(t, hitText(0))
	}
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, rawLookup(lookuptest.Chain("a", 8, 32), 32))
	p.Expect(t, hitText(0))
	require.Equal(t, int64(3*128), sum(tokensAfter(t, server)), "the process that came again has asked once")
	var names []string
	for _, a := range server.Stat().Askers {
		names = append(names, a.Name)
	}
	require.ElementsMatch(t, []string{"one", "two", "127.0.0.1"}, names)
	for _, of := range accountReaders {
		told := server.statFor(of.peer, of.credential, server.pools.own).PoolTokens
		require.Equal(t, of.known, len(told.Askers) == 3, "%+v", of)
		require.Nil(t, told.LostMost, "single prompts are told at the metrics address alone")
	}
}

func sum(counts map[string]int64) (n int64) {
	for _, of := range counts {
		n += of
	}
	return n
}

// What a prompt that was asked for before lets expect is asked for in one round.
func TestKnownPromptIsAskedForAtOnce(t *testing.T) {
	chain := lookuptest.Chain("known", 1000, 32)
	server := startRemote(t, lookuptest.Filled(t, chain), patient, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	stat := server.pools.list()[0].service.Stat
	rounds := func() int64 {
		before := stat().BackendRounds
		p.Send(t, lookupOf("", chain))
		p.Expect(t, hitText(1000))
		return stat().BackendRounds - before
	}
	require.EqualValues(t, 2, rounds())
	lookuptest.Eventually(t, "all is asked for at once", func() bool { return rounds() == 1 })
}

// Who asks again for a prompt of which the store lacks most has no more keys asked for than the first time, and is answered.
func TestAbsentPromptAskedForAgain(t *testing.T) {
	for _, present := range []int{0, 1, 20} {
		chain := lookuptest.Chain("absent", 10_000, 32)
		cfg := patient
		cfg.MaxKeyBytes = 1 << 20 // of which all keys would take more than half
		server := startRemote(t, lookuptest.Filled(t, chain[:32*present]), cfg, Limits{})
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		stat := server.pools.list()[0].service.Stat
		for range 20 {
			before := stat().BackendKeys
			p.Send(t, lookupOf("", chain))
			p.Expect(t, hitText(present))
			require.LessOrEqual(t, stat().BackendKeys-before, int64(64+present))
			server.accounts.Flush()
		}
	}
}
