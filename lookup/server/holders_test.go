package server

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/fleet"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/holders"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// holdersOf returns a holders service that ends with the test.
func holdersOf(t testing.TB, models ...holders.Model) *holders.Service {
	t.Helper()
	s, err := holders.New(holders.Config{Models: models})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// hold stores blocks of 32-byte hashes in a holder as its engine's events would, and makes it if there is none.
func hold(t testing.TB, s *holders.Service, model, instance string, rank int, medium string, hashes []byte) {
	t.Helper()
	f, _, err := s.Fleet(holders.ModelKey{Name: model})
	require.NoError(t, err)
	id := fleet.ID{Instance: instance, Rank: rank}
	h := f.Get(id)
	if h == nil {
		h, err = f.Add(id)
		require.NoError(t, err)
		h.SetStale(false)
	}
	view := coordinator.NewHashes(hashes, 32)
	blocks := events.Blocks{Group: events.NoGroup, Tier: events.Tier{Medium: medium}, Hashes: view, BlockSize: int64(f.BlockSize())}
	require.NoError(t, h.Store(&blocks, make([]bool, view.Len())))
}

// holdersOfPrompt returns a holders request.
func holdersOfPrompt(query string, hashes []byte) []byte {
	hashLen := 32
	if len(hashes) == 0 {
		hashLen = 0
	}
	return append(netproto.AppendHolders(nil, nil, []byte(query), hashLen, len(hashes)), hashes...)
}

// startHolders starts a server with the model m over its pool, in memory or over a store, and the model
// bare without a pool. Some hold parts of the chain "prompt", whose first 7 blocks are in the pool.
func startHolders(t testing.TB, store *lookuptest.KeyStore, settings Settings) (*Server, []byte) {
	t.Helper()
	return startHoldersOver(t, store, patient, settings)
}

func startHoldersOver(t testing.TB, store *lookuptest.KeyStore, remote lookup.RemoteConfig, settings Settings) (*Server, []byte) {
	t.Helper()
	prompt := lookuptest.Chain("prompt", 10, 32)
	cfg := blocks16
	if store != nil {
		cfg.Backend, cfg.Remote = store, remote
	}
	service, err := lookup.NewService(cfg)
	require.NoError(t, err)
	require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(prompt[:7*32], 32)))
	kept := holdersOf(t, holders.Model{ModelKey: holders.ModelKey{Name: "m"}, Service: service},
		holders.Model{ModelKey: holders.ModelKey{Name: "bare"}, Fleet: fleet.Config{BlockSize: 64}})
	hold(t, kept, "m", "a", 0, "GPU", prompt[:3*32])
	hold(t, kept, "m", "a", 1, "GPU", prompt[:5*32])
	hold(t, kept, "m", "a", 1, "CPU", prompt[:2*32])
	hold(t, kept, "m", `b"ü`, 0, "CPU", prompt[:4*32])
	hold(t, kept, "bare", "c", 7, "GPU", prompt)
	server, err := New(service, Config{Listeners: []Listener{{"tcp://127.0.0.1:0", settings}}, Loops: 2, Holders: kept})
	require.NoError(t, err)
	startTest(t, server)
	return server, prompt
}

// askHolders returns the status of a reply to holders, and its JSON or reason.
func askHolders(t testing.TB, p *lookuptest.Peer, query string, hashLen int, hashes []byte) string {
	t.Helper()
	reply := p.Ask(t, []byte("holders"), []byte(query), []byte{0, byte(hashLen)}, hashes)
	require.GreaterOrEqual(t, len(reply), 2)
	return fmt.Sprintf("%x %s", reply[0], reply[1])
}

// The last 8 bytes of hashes, as events have them.
func shortOf(hashes []byte) (short []byte) {
	for hash := range slices.Chunk(hashes, 32) {
		short = append(short, hash[24:]...)
	}
	return short
}

// TestHoldersExample replays the example of docs/protocol.md.
func TestHoldersExample(t *testing.T) {
	var hashes []byte
	for i := range byte(2) {
		hashes = append(hashes, append(make([]byte, 24), 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, i)...)
	}
	kept := holdersOf(t, holders.Model{ModelKey: holders.ModelKey{Name: "llama"}, Fleet: fleet.Config{BlockSize: 16}})
	hold(t, kept, "llama", "e0", 0, "CPU", hashes)
	hold(t, kept, "llama", "e0", 0, "GPU", hashes[:32])
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	server, err := New(service, Config{Listen: []string{"tcp://127.0.0.1:0"}, Holders: kept})
	require.NoError(t, err)
	startTest(t, server)
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	said := wireExample(t, "## Who holds a prompt")
	require.Len(t, said, 2)
	p.Send(t, said[0].bytes)
	p.Reads(t, said[1].bytes)
	query := netproto.AppendHolders(nil, nil, []byte(`{"model":"llama"}`), 8, 16)
	require.Equal(t, said[0].bytes, append(query, shortOf(hashes)...), "the client's own bytes")
}

const (
	holderA1 = `{"instance":"a","rank":1,"tokens":80,"media":{"CPU":32,"GPU":80}}`
	holderB  = `{"instance":"b\"ü","rank":0,"tokens":64,"media":{"CPU":64}}`
	holderA0 = `{"instance":"a","rank":0,"tokens":48,"media":{"GPU":48}}`
)

func TestHolders(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server, prompt := startHolders(t, store, Settings{})
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		for _, c := range []struct {
			query   string
			hashLen int
			hashes  []byte
			want    string
		}{
			{`{"model":"m"}`, 32, prompt, `{"block_size":16,"holders":[` + holderA1 + "," + holderB + "," + holderA0 + `]}`},
			{`{"model":"m","tenant":"default"}`, 8, shortOf(prompt), `{"block_size":16,"holders":[` + holderA1 + "," + holderB + "," + holderA0 + `]}`},
			{`{"model":"m","instance":"a"}`, 32, prompt, `{"block_size":16,"holders":[` + holderA1 + "," + holderA0 + `]}`},
			{`{"model":"m","instance":"x"}`, 32, prompt, `{"block_size":16,"holders":[]}`},
			{`{"model":"m","limit":1}`, 32, prompt, `{"block_size":16,"holders":[` + holderA1 + `],"left_out":2}`},
			{`{"model":"m","limit":3}`, 32, prompt, `{"block_size":16,"holders":[` + holderA1 + "," + holderB + "," + holderA0 + `]}`},
			{`{"model":"m","instance":"a","limit":1,"loadable":true}`, 32, prompt, `{"block_size":16,"holders":[` + holderA1 + `],"left_out":1,"loadable_tokens":112}`},
			{`{"model":"m","loadable":true}`, 32, prompt, `{"block_size":16,"holders":[` + holderA1 + "," + holderB + "," + holderA0 + `],"loadable_tokens":112}`},
			{`{"model":"m","loadable":true,"num_tokens":40}`, 32, prompt[:64], `{"block_size":16,"holders":[{"instance":"a","rank":0,"tokens":32,"media":{"GPU":32}},` +
				`{"instance":"a","rank":1,"tokens":32,"media":{"CPU":32,"GPU":32}},{"instance":"b\"ü","rank":0,"tokens":32,"media":{"CPU":32}}],"loadable_tokens":32}`},
			{`{"model":"m","loadable":true}`, 32, lookuptest.Chain("other", 3, 32), `{"block_size":16,"holders":[],"loadable_tokens":0}`},
			{`{"model":"m","loadable":true}`, 0, nil, `{"block_size":16,"holders":[],"loadable_tokens":0}`},
			{`{"model":"m"}`, 0, nil, `{"block_size":16,"holders":[]}`},
			{`{"model":"m"}`, 32, nil, `{"block_size":16,"holders":[]}`},
			{`{"model":"bare"}`, 32, prompt, `{"block_size":64,"holders":[{"instance":"c","rank":7,"tokens":640,"media":{"GPU":640}}]}`},
		} {
			require.Equal(t, "01 "+c.want, askHolders(t, p, c.query, c.hashLen, c.hashes), c.query)
		}
		require.EqualValues(t, 5, server.Stat().Lookups, "those of the store, with and without hashes")
		require.EqualValues(t, 14, server.Stat().Requests["holders"])
	})
}

// Bad requests are refused with a reason, and the connection goes on.
func TestHoldersRefused(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server, prompt := startHolders(t, store, Settings{})
		require.NoError(t, server.SetLimits(Limits{MaxHashes: 100}))
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		for _, c := range []struct {
			query   string
			hashLen int
			hashes  []byte
			want    string
		}{
			{`{}`, 32, prompt, `holders: there is no such model: tenant "default" has several; name one`},
			{`{"model":"x"}`, 32, prompt, `holders: there is no such model: "x" of tenant "default"`},
			{`{"model":"m","tenant":"x"}`, 32, prompt, `holders: there is no such model: "m" of tenant "x"`},
			{`{"model":"bare","loadable":true}`, 32, prompt, `holders: the model has no pool whose store could be asked: "bare"`},
			{`{"model":"m","loadable":true}`, 8, shortOf(prompt), `holders: the store's keys need whole digests, not 64 bits of them: model "m"`},
			{`{"model":"m"}`, 7, prompt[:70], "fleet: hashes of less than 8 bytes: 7"},
			{`{"model":"m"}`, 32, prompt[:33], "blob is not a whole number of keys"},
			{`{"model":"m"}`, 8, make([]byte, 808), "more hashes than this server takes in one lookup: 101, the limit is 100"},
			{``, 32, prompt, "query of a holders request is empty or over 8192 bytes"},
			{`{`, 32, prompt, "the query of holders cannot be read: unexpected EOF"},
			{`[]`, 32, prompt, "the query of holders cannot be read: a JSON array, and not an object"},
			{`{"model":1}`, 32, prompt, "the query of holders cannot be read: model is a JSON number, want a string"},
			{`{"model":"m","tokens":[1]}`, 32, prompt, `the query of holders cannot be read: unknown field "tokens"`},
			{`{"model":"m"}{}`, 32, prompt, "the query of holders cannot be read: text behind the object"},
			{`{"model":"m","num_tokens":-1}`, 32, prompt, errHoldersTokens.Error()},
			{`{"model":"m","limit":-1}`, 32, prompt, errHoldersTokens.Error()},
		} {
			require.Equal(t, "00 "+c.want, askHolders(t, p, c.query, c.hashLen, c.hashes), c.query)
		}
		require.Equal(t, `01 {"block_size":16,"holders":[`+holderA1+`],"left_out":2}`, askHolders(t, p, `{"model":"m","limit":1}`, 32, prompt))
	})
}

// A server without holders refuses whatever is asked for the same reason, on a connection without a pool too.
func TestServerWithoutHolders(t *testing.T) {
	for _, server := range []*Server{
		startServer(t, blocks16, Limits{}), startRemote(t, &lookuptest.KeyStore{}, patient, Limits{}), startTenants(t),
	} {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		for _, query := range []string{"{}", "[", `{"model":"m","loadable":true}`} {
			require.Equal(t, "00 "+errNoHolders.Error(), askHolders(t, p, query, 8, make([]byte, 80)))
		}
	}
	server, err := New(nil, Config{Listen: []string{"tcp://127.0.0.1:0"}, AcceptPool: memoryService, Holders: holdersOf(t,
		holders.Model{ModelKey: holders.ModelKey{Name: "m"}, Fleet: fleet.Config{BlockSize: 16}})})
	require.NoError(t, err)
	startTest(t, server)
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	require.Equal(t, `01 {"block_size":16,"holders":[]}`, askHolders(t, p, "{}", 8, make([]byte, 80)), "no pool is needed")
}

// A model whose pool has another store than the server is not asked about that.
func TestHoldersOfAnotherStore(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		cfg, other := blocks16, blocks16
		if store != nil {
			cfg.Backend, cfg.Remote = store, patient
		} else {
			other.Backend, other.Remote = &lookuptest.KeyStore{}, patient
		}
		service, err := lookup.NewService(cfg)
		require.NoError(t, err)
		elsewhere, err := lookup.NewService(other)
		require.NoError(t, err)
		server, err := New(service, Config{Listen: []string{"tcp://127.0.0.1:0"}, Holders: holdersOf(t, holders.Model{ModelKey: holders.ModelKey{Name: "m"}, Service: elsewhere})})
		require.NoError(t, err)
		startTest(t, server)
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		require.Equal(t, "00 "+errOtherStore.Error(), askHolders(t, p, `{"loadable":true}`, 32, make([]byte, 64)))
		require.Equal(t, `01 {"block_size":16,"holders":[]}`, askHolders(t, p, `{}`, 32, make([]byte, 64)))
	})
}

// The store is asked only for peers that may look up.
func TestLoadableNeedsLookup(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server, prompt := startHolders(t, store, settingsOf(t, access.Holders))
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		require.Contains(t, askHolders(t, p, `{"model":"m"}`, 32, prompt), "01 ")
		reply := p.Ask(t, []byte("holders"), []byte(`{"model":"m","loadable":true}`), []byte{0, 32}, prompt)
		require.Equal(t, &api.Refusal{Refusal: api.RefusalNotAllowed, Request: "lookup"}, refusalIn(reply))
		require.Equal(t, "not allowed: lookup; this connection may: holders", string(reply[1]))
		require.Equal(t, map[string]int64{"lookup": 1}, server.Stat().NotAllowed)
		require.Zero(t, server.Stat().Lookups)
	})
}

// A request that began with a permission is refused if that is gone before its end.
func TestHoldersRevoked(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server, prompt := startHolders(t, store, settingsOf(t, access.Holders|access.Lookup))
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		message := holdersOfPrompt(`{"model":"m","loadable":true}`, prompt)
		p.Send(t, message[:len(message)-1])
		lookuptest.Eventually(t, "it has begun", func() bool { return server.heldBytes() > 0 })
		require.NoError(t, server.SetListener(server.Addrs()[0], settingsOf(t, access.Holders)))
		p.Send(t, message[len(message)-1:])
		require.Equal(t, &api.Refusal{Refusal: api.RefusalNotAllowed, Request: "lookup"}, refusalIn(p.Next(t)))
	})
}

// startModels starts a server like startTenants with the named pools, and a model for each, its own and another
// without a pool.
func startModels(t *testing.T, names ...string) *Server {
	t.Helper()
	var models []holders.Model
	cfg := Config{Loops: 2}
	for _, name := range append([]string{""}, names...) {
		service, err := memoryService(modelPool("model " + name))
		require.NoError(t, err)
		models = append(models, holders.Model{ModelKey: holders.ModelKey{Name: "of " + name}, Service: service, Pool: name})
		if name != "" {
			cfg.Pools = append(cfg.Pools, NamedPool{name, service})
		}
	}
	models = append(models, holders.Model{ModelKey: holders.ModelKey{Name: "bare"}, Fleet: fleet.Config{BlockSize: 16}})
	cfg.Holders = holdersOf(t, models...)
	cfg.Listeners = []Listener{{"tcp://127.0.0.1:0", settingsOf(t, access.All,
		tokenOf("ab", access.All, "missing", "a", "b"), tokenOf("own", access.All, ""), tokenOf("none", access.All, "missing"))}}
	server, err := New(models[0].Service, cfg)
	require.NoError(t, err)
	startTest(t, server)
	return server
}

// A tenant may ask about models of its pools alone, whatever pool its connection has, and is told of no other.
func TestTenantHolders(t *testing.T) {
	server := startModels(t, "a", "b", "c")
	served := map[string]string{"ab": "of a, of b", "own": "of ", "none": "", "": "of , of a, of b, of c, bare"}
	for name, want := range served {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		if name != "" {
			auth(t, p, name)
		}
		var got []string
		for _, model := range []string{"of ", "of a", "of b", "of c", "bare", "of missing", ""} {
			for _, loadable := range []bool{false, true} {
				text, err := json.Marshal(api.HoldersQuery{Model: model, Loadable: loadable})
				require.NoError(t, err)
				reply := askHolders(t, p, string(text), 32, make([]byte, 64))
				switch {
				case strings.HasPrefix(reply, "01 "):
					if !loadable {
						got = append(got, model)
					}
				case name != "":
					require.Equal(t, "00 "+errNotOfTenants.Error(), reply, "%s %s", name, text)
				}
			}
		}
		require.Equal(t, want, strings.Join(got, ", "), name)
	}
}

// crowdedServer returns a server that is not started, whose only model has many holders of the chain "crowd".
func crowdedServer(t testing.TB, crowd int) *Server {
	t.Helper()
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	kept := holdersOf(t, holders.Model{ModelKey: holders.ModelKey{Name: "m"}, Service: service})
	for i := range crowd {
		hold(t, kept, "m", fmt.Sprintf("engine-%04d", i), 0, "GPU", lookuptest.Chain("crowd", 1, 32))
	}
	server, err := New(service, Config{Holders: kept})
	require.NoError(t, err)
	return server
}

// hybridHolders returns a server that is not started, whose only model has two groups, and many holders of parts of the
// chain "hybrid".
func hybridHolders(t testing.TB, crowd int) *Server {
	t.Helper()
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	groups := []coordinator.Group{{BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32}}
	kept := holdersOf(t, holders.Model{ModelKey: holders.ModelKey{Name: "m"}, Service: service, Fleet: fleet.Config{Groups: groups}})
	f, _, err := kept.Fleet(holders.ModelKey{Name: "m"})
	require.NoError(t, err)
	chain := lookuptest.Chain("hybrid", 300, 32)
	for i := range crowd {
		h, err := f.Add(fleet.ID{Instance: fmt.Sprintf("engine-%04d", i)})
		require.NoError(t, err)
		h.SetStale(false)
		for g := range groups {
			blocks := events.Blocks{Group: g, Tier: events.Tier{Medium: "GPU"}, Hashes: coordinator.NewHashes(chain[:(1+i%300)*32], 32), BlockSize: 16}
			if g == 1 {
				blocks.SpecKind, blocks.SlidingWindow = "sliding_window", 32
			}
			require.NoError(t, h.Store(&blocks, make([]bool, 300)))
		}
	}
	server, err := New(service, Config{Holders: kept})
	require.NoError(t, err)
	return server
}

// A reply is bounded: the holders behind those that fit are counted, and none of them is longer.
func TestHoldersReplyIsBounded(t *testing.T) {
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	kept := holdersOf(t, holders.Model{ModelKey: holders.ModelKey{Name: "m"}, Service: service})
	chain := lookuptest.Chain("crowd", 2, 32)
	const crowd = 3000
	long := strings.Repeat("x", 240)
	for i := range crowd {
		hold(t, kept, "m", fmt.Sprintf("%s%d", long, i), 0, "GPU", chain[:32])
	}
	hold(t, kept, "m", "z", 0, "GPU", chain)
	hold(t, kept, "m", "zz", 0, "GPU", chain[:32]) // behind the others; it would fit
	server, err := New(service, Config{Holders: kept})
	require.NoError(t, err)
	var got allReplies
	require.NoError(t, openSession(server, &got, nil).receive(holdersOfPrompt("{}", chain)))
	frames, _, err := netproto.ParseMessage(got.Bytes(), netproto.Limits{}, nil)
	require.NoError(t, err)
	require.LessOrEqual(t, len(frames[1]), api.MaxHoldersReply)
	require.Greater(t, len(frames[1]), api.MaxHoldersReply-1000)
	var answer api.HoldersAnswer
	require.NoError(t, json.Unmarshal(frames[1], &answer))
	require.Equal(t, crowd+2, len(answer.Holders)+answer.LeftOut)
	require.NotEqual(t, "zz", answer.Holders[len(answer.Holders)-1].Instance)
	require.Equal(t, api.Holder{Instance: "z", Tokens: 32, Media: map[string]int64{"GPU": 32}}, answer.Holders[0])
}

// Over a store that fails, is late or busy nothing is loadable, and the holders are told.
func TestHoldersWithoutTheStore(t *testing.T) {
	want := `01 {"block_size":16,"holders":[` + holderA1 + `],"left_out":2,"loadable_tokens":0}`
	const query = `{"model":"m","limit":1,"loadable":true}`
	t.Run("fails", func(t *testing.T) {
		store := &lookuptest.KeyStore{}
		store.Before = func(_ context.Context, op string, _ []string) error {
			if op == "exists" {
				return lookuptest.ErrStore
			}
			return nil
		}
		server, prompt := startHolders(t, store, Settings{})
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		for range 30 { // the breaker opens
			require.Equal(t, want, askHolders(t, p, query, 32, prompt))
		}
		require.True(t, server.backend.Down())
		require.Positive(t, server.Stat().BackendRejected)
		require.EqualValues(t, 30, server.Stat().Lookups)
	})
	t.Run("is late", func(t *testing.T) {
		store := &lookuptest.KeyStore{}
		store.Before = func(ctx context.Context, op string, _ []string) error {
			if op != "exists" {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		server, prompt := startHoldersOver(t, store, lookup.RemoteConfig{Timeout: 100 * time.Millisecond, WriteTimeout: lookuptest.Patience}, Settings{})
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		require.Equal(t, want, askHolders(t, p, query, 32, prompt))
		require.EqualValues(t, 1, server.Stat().BackendTimeouts)
	})
}

// Without loadable no store is asked, no hash is copied and no reply of a write is waited for. With it, the reply waits
// for the writes in front of it.
func TestHoldersBehindWrites(t *testing.T) {
	store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(gate, "store", hex.EncodeToString(lookuptest.Chain("prompt", 10, 32)[9*32:])) // which is not stored at first
	server, prompt := startHolders(t, store, Settings{})
	calls := store.Calls.Load()
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	rank := coordinator.GroupRank{}
	of := func(id, query string) []byte {
		envelope := lookuptest.Encode([]byte(id), nil)
		envelope[len(envelope)-2] |= 1
		return append(netproto.AppendHolders(nil, envelope, []byte(query), 32, len(prompt)), prompt...)
	}
	p.Send(t, append(netproto.AppendKeys(nil, nil, netproto.TagStore, netproto.Rank(rank), 32, len(prompt)), prompt...))
	p.Send(t, of("\x00loadable", `{"model":"m","limit":1,"loadable":true}`), of("\x00plain", `{"model":"m","limit":1}`))
	reply := p.Next(t)
	require.Equal(t, "\x00plain", string(reply[0]))
	require.JSONEq(t, `{"block_size":16,"holders":[`+holderA1+`],"left_out":2}`, string(reply[3]))
	lookuptest.Eventually(t, "the store waits", func() bool { return gate.Held.Load() == 1 })
	require.EqualValues(t, calls+1, store.Calls.Load(), "that of the write alone")
	lookuptest.Eventually(t, "the other one is held", func() bool { return server.heldBytes() > 0 && server.Stat().InFlight == 2 })
	close(gate.Open)
	require.Equal(t, []byte{1}, p.Next(t)[0])
	reply = p.Next(t)
	require.Equal(t, "\x00loadable", string(reply[0]))
	require.JSONEq(t, `{"block_size":16,"holders":[`+holderA1+`],"left_out":2,"loadable_tokens":160}`, string(reply[3]))
	lookuptest.Eventually(t, "only small buffers are held", func() bool { return server.heldBytes() < 200 && server.Stat().InFlight == 0 })
}

// A request for what is loadable that waits for a write is answered in time, without the store; one that may
// not be made any more is refused.
func TestHoldersThatWait(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		allow   access.Permissions
		want    string
	}{
		"for too long": {100 * time.Millisecond, access.All, `01 {"block_size":16,"holders":[` + holderA1 + `],"left_out":2,"loadable_tokens":0}`},
		"meanwhile":    {lookuptest.Patience, access.All &^ access.Lookup, "00 not allowed: lookup; this connection may: " + (access.All &^ access.Lookup).String()},
	} {
		t.Run(name, func(t *testing.T) {
			store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
			store.Holding(gate, "store", hex.EncodeToString(lookuptest.Chain("prompt", 10, 32)[9*32:]))
			server, prompt := startHoldersOver(t, store, lookup.RemoteConfig{Timeout: c.timeout, WriteTimeout: lookuptest.Patience}, settingsOf(t, access.All))
			p := lookuptest.DialPeer(t, server.Addrs()[0])
			envelope := lookuptest.Encode([]byte("\x00id"), nil)
			envelope[len(envelope)-2] |= 1
			query := netproto.AppendHolders(nil, envelope, []byte(`{"model":"m","limit":1,"loadable":true}`), 32, len(prompt))
			p.Send(t, append(netproto.AppendKeys(nil, nil, netproto.TagStore, netproto.Rank{}, 32, len(prompt)), prompt...), append(query, prompt...))
			lookuptest.Eventually(t, "both are there", func() bool {
				return gate.Held.Load() == 1 && server.Stat().InFlight == 2 || c.timeout < lookuptest.Patience
			})
			require.NoError(t, server.SetListener(server.Addrs()[0], settingsOf(t, c.allow)))
			if c.timeout == lookuptest.Patience {
				close(gate.Open)
				require.Equal(t, []byte{1}, p.Next(t)[0])
			} else {
				defer close(gate.Open)
			}
			reply := p.Next(t)
			require.Equal(t, c.want, fmt.Sprintf("%x %s", reply[2], reply[3]))
		})
	}
}

// Names are encoded as JSON, whatever they have.
func TestHolderNames(t *testing.T) {
	for _, name := range []string{"", "engine-0", "10.0.0.1:8000", "a b~!#[]^<>&'", `"`, `\`, "\x00", "\n", "ü", "日本", "\x7f", "\u2028"} {
		var got string
		require.NoError(t, json.Unmarshal(appendJSONString(nil, name), &got), name)
		require.Equal(t, name, got)
	}
}

// What the server answers in pieces is what the service answers at once, in any order with other requests.
func TestHoldersAsTheService(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server, prompt := startHolders(t, store, Settings{})
		clients := []*client.Client{dialTest(t, server), dialTest(t, server, client.WithPipeline())}
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range 300 {
			n := rng.IntN(11)
			query := api.HoldersQuery{Model: "m", Loadable: rng.IntN(2) == 0, NumTokens: int64(rng.IntN(2) * rng.IntN(200))}
			hashes := coordinator.NewHashes(prompt[:32*n], 32)
			var want holders.Answer
			err := server.cfg.Holders.Query(t.Context(), &holders.Query{
				ModelKey: holders.ModelKey{Name: query.Model}, Hashes: hashes, Loadable: query.Loadable, NumTokens: query.NumTokens,
			}, &want)
			got, gotErr := clients[i%2].Holders(t.Context(), &query, hashes)
			if err != nil {
				require.ErrorIs(t, gotErr, client.ErrRefused)
				require.ErrorContains(t, gotErr, err.Error())
				continue
			}
			require.NoError(t, gotErr)
			require.Equal(t, want.BlockSize, got.BlockSize)
			require.Len(t, got.Holders, len(want.Holders))
			for j, p := range want.Holders {
				h := api.Holder{Instance: p.Instance, Rank: p.Rank, Tokens: p.Tokens, Media: map[string]int64{}}
				for _, m := range p.Media {
					h.Media[m.Medium] = m.Tokens
				}
				require.Equal(t, h, got.Holders[j])
			}
			if loadable := int64(-1); !query.Loadable {
				require.Nil(t, got.LoadableTokens)
				require.Equal(t, loadable, want.LoadableTokens)
			} else {
				require.Equal(t, want.LoadableTokens, *got.LoadableTokens)
			}
		}
	})
}

// ZMTP peers get the same, and no reason of a refusal.
func TestHoldersOverZMTP(t *testing.T) {
	server, prompt := startHolders(t, nil, Settings{})
	var got allReplies
	ses := openSession(server, &got, nil)
	require.NoError(t, ses.receive(slices.Concat(zmtpGreeting, zmtpReady)))
	got.Reset()
	for _, query := range []string{`{"model":"m","limit":1}`, `{"model":"x"}`} {
		require.NoError(t, ses.receive(slices.Concat([]byte{1, 0}, holdersOfPrompt(query, prompt))))
	}
	frames, n, err := netproto.ParseMessage(got.Bytes(), netproto.Limits{}, nil)
	require.NoError(t, err)
	require.Len(t, frames, 3)
	require.JSONEq(t, `{"block_size":16,"holders":[`+holderA1+`],"left_out":2}`, string(frames[2]))
	require.Equal(t, []byte{1, 0, 0, 1, 0}, got.Bytes()[n:])
}

// BenchmarkHolders asks about 8,192 blocks that 64 holders have, each some more than the one before.
func BenchmarkHolders(b *testing.B) {
	const blocks, count = 8192, 64
	chain := lookuptest.Chain("bench", blocks, 32)
	server := crowdedServer(b, 0)
	for i := range count {
		hold(b, server.cfg.Holders, "m", fmt.Sprintf("engine-%02d", i), 0, "GPU", chain[:(i+1)*blocks/count*32])
	}
	for _, query := range []string{`{}`, `{"limit":4}`} {
		b.Run(query, func(b *testing.B) {
			var got allReplies
			ses, message := openSession(server, &got, nil), holdersOfPrompt(query, chain)
			b.ReportAllocs()
			for b.Loop() {
				got.Reset()
				require.NoError(b, ses.receive(message))
			}
			require.NotZero(b, got.Len())
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
		})
	}
}
