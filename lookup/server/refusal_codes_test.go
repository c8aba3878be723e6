package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server/internal/description"
	"github.com/hitline/hitline/netproto"
)

// badRequest is a request, and how it is refused.
type badRequest struct {
	frames [][]byte
	code   string
	frame  int   // that is wrong, 0 for none
	limit  int64 // that is exceeded, 0 for none
	text   string
	more   string // of the JSON, further fields
}

// name returns the name of a bad request's kind.
func (bad *badRequest) name() string {
	for tag := netproto.TagUnknown + 1; int(tag) < netproto.NumTags; tag++ {
		if len(bad.frames) > 0 && string(bad.frames[0]) == tag.String() {
			return tag.String()
		}
	}
	return "unknown"
}

// json returns the last frame of the refusal.
func (bad *badRequest) json() string {
	text := fmt.Sprintf(`{"refusal":%q,"request":%q`, bad.code, bad.name())
	if bad.frame != 0 {
		text += fmt.Sprintf(`,"frame":%d`, bad.frame)
	}
	if bad.limit != 0 {
		text += fmt.Sprintf(`,"limit":%d`, bad.limit)
	}
	return text + bad.more + "}"
}

// reply returns the reply to a bad request, as docs/protocol.md has it, on a connection with a pool of a
// release; "" without a pool.
func (bad *badRequest) reply(vllm string, zmtp bool) [][]byte {
	kind := bad.name()
	ofServer := bad.code == api.RefusalNotAllowed || bad.code == api.RefusalBusy
	switch {
	case kind == "lookup" && vllm == "0.29.0" && (zmtp || !ofServer):
		return [][]byte{{0, 0, 0, 0}}
	case zmtp && (kind == "lookup" || kind == "reset" || kind == "unknown"):
		return [][]byte{{0}}
	case bad.code == api.RefusalPartlyDone && kind != "reset":
		return [][]byte{{4}, []byte(bad.text), []byte(bad.json())}
	}
	return [][]byte{{0}, []byte(bad.text), []byte(bad.json())}
}

// check sends a bad request on a connection and requires its refusal. The connection goes on.
func (bad *badRequest) check(t *testing.T, p *lookuptest.Peer, vllm string, zmtp bool) {
	t.Helper()
	bad.refused(t, p, vllm, zmtp)
	require.Equal(t, []string{"\x01", "still here"}, texts(askIn(t, p, zmtp, frames("ping", "still here"))))
}

// refused sends a bad request on a connection and requires its refusal.
func (bad *badRequest) refused(t *testing.T, p *lookuptest.Peer, vllm string, zmtp bool) {
	t.Helper()
	reply := askIn(t, p, zmtp, bad.frames)
	require.Equal(t, texts(bad.reply(vllm, zmtp)), texts(reply), "%.20q", bad.frames)
	if len(reply) == 3 {
		require.NotRegexp(t, `\b(api|backend|coordinator|index|lookup|netproto|server): `, string(reply[1])+string(reply[2]))
	}
}

// askIn asks in a dialect, and returns the body frames of the reply.
func askIn(t *testing.T, p *lookuptest.Peer, zmtp bool, frames [][]byte) [][]byte {
	t.Helper()
	envelope := [][]byte{[]byte("\x00id"), {}}
	if zmtp {
		envelope = envelope[1:] // that of a REQ peer
	}
	reply := p.Ask(t, append(slices.Clone(envelope), frames...)...)
	require.Equal(t, envelope, reply[:len(envelope)])
	return reply[len(envelope):]
}

// texts returns frames as texts.
func texts(frames [][]byte) (list []string) {
	for _, f := range frames {
		list = append(list, string(f))
	}
	return list
}

// frames returns the frames of a request. Numbers take four bytes.
func frames(tag string, rest ...any) [][]byte {
	list := [][]byte{[]byte(tag)}
	for _, f := range rest {
		switch f := f.(type) {
		case string:
			list = append(list, []byte(f))
		case []byte:
			list = append(list, f)
		case int:
			list = append(list, u32s(uint32(f)))
		}
	}
	return list
}

// lookupFrames returns the frames of a request that looks up, from the beginning of the prompt.
func lookupFrames(tag string, tokens int, rest ...any) [][]byte {
	if tag == "lookup" {
		return frames(tag, append([]any{tokens}, rest...)...)
	}
	return frames(tag, append([]any{u32s(uint32(tokens), 0)}, rest...)...)
}

// refusingPool is a pool of a release whose every kind of request can fail.
func refusingPool(vllm string) coordinator.Pool {
	return coordinator.Pool{VLLM: vllm, HashBlockSize: 16, SchedulerBlockSize: 64, HashLen: 32, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 64}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 17},
	}}
}

const refusingMaxHashes = 16

var (
	refusedKeys = lookuptest.Chain("refused", 8, 32) // 128 tokens
	lookingUp   = []string{"lookup", "lookup_from", "explain", "plan"}
	refusedRank = "\x00\x00\x00\x00\x00\x00"
	hashLen32   = "\x00\x20"
	promptOf    = func(numTokens, start, length, first uint32) string {
		return string(u32s(numTokens, start, length, first))
	}
	wholePrompt  = promptOf(128, 0, 128, 0)
	longestBlob  = lookuptest.Chain("long", refusingMaxHashes+1, 32)
	manyEntries  = netproto.MaxRanks + 1
	longestText  = strings.Repeat("x", netproto.MaxDescription+1)
	longestToken = strings.Repeat("x", netproto.MaxToken+1)
)

// badFrames are requests of each kind with a frame that is missing, malformed or one too many. Package netproto has
// all of these mistakes.
func badFrames() (list []badRequest) {
	add := func(code string, frame int, limit int64, text string, frames [][]byte) {
		list = append(list, badRequest{frames: frames, code: code, frame: frame, limit: limit, text: text})
	}
	bad := func(frame int, text string, frames [][]byte) { add(api.RefusalBadRequest, frame, 0, text, frames) }
	large := func(frame int, limit int64, text string, frames [][]byte) {
		add(api.RefusalTooLarge, frame, limit, text, frames)
	}
	unknown := func(text string, frames ...[]byte) { add(api.RefusalUnknownRequest, 0, 0, text, frames) }

	unknown(`unknown request "LOOKUP"`, []byte("LOOKUP"))
	unknown(`unknown request "holders"`, frames("holders", "{}", hashLen32, refusedKeys)...)
	unknown(`unknown request "anchors"`, frames("anchors", 0, hashLen32, "", "", "")...)
	unknown(`unknown request "00000000000000000000000000000000"...`, []byte(strings.Repeat("0", 33)))
	unknown("no request behind the delimiter")

	bad(1, "num_tokens is missing", frames("lookup"))
	for _, tag := range lookingUp {
		bad(3, "the blob is missing", lookupFrames(tag, 128, hashLen32))
		bad(2, "hash_len is over 64", lookupFrames(tag, 128, "\x00\x41", refusedKeys))
	}
	for _, tag := range lookingUp[1:] {
		bad(4, "frame 4 is one too many for "+tag, lookupFrames(tag, 128, hashLen32, refusedKeys, "x"))
	}
	for _, tag := range []string{"store", "evict"} {
		bad(1, "rank is 7 bytes, want 6, 8 or 12", frames(tag, refusedRank+"x", hashLen32, refusedKeys))
		bad(3, "the blob is 33 bytes, want a multiple of hash_len, 32", frames(tag, refusedRank, hashLen32, refusedKeys[:33]))
	}
	bad(3, "frame 3 is one too many for renew", frames("renew", hashLen32, refusedKeys, ""))
	prompt := func(rest ...any) [][]byte { return frames("store_prompt", append([]any{wholePrompt}, rest...)...) }
	bad(6, "frame 6 is one too many for store_prompt", prompt("", "", hashLen32, refusedKeys, ""))
	large(2, netproto.MaxRanks, "the frame of ranks exceeds 4096 ranks", prompt(make([]byte, 6*manyEntries), "", hashLen32, refusedKeys))
	large(3, netproto.MaxStates, "the frame of states exceeds 4096 states", prompt("", make([]byte, 8*manyEntries), hashLen32, refusedKeys))
	for tag, size := range map[string]int{"load_mask": 8, "store_mask": 12, "lookup_mask": 4} {
		bad(1, fmt.Sprintf("the frame of numbers is %d bytes, want %d", size+1, size), frames(tag, make([]byte, size+1)))
	}
	bad(1, "rank is 12 bytes, want 6 or 8", frames("reset_rank", refusedRank+refusedRank))
	large(2, netproto.MaxPing, "payload exceeds 65536 bytes", frames("ping", longestText[:40000], longestText[:40000]))
	bad(1, "frame 1 is one too many for stat", frames("stat", ""))
	large(1, netproto.MaxDescription, "description exceeds 65536 bytes", frames("pool", longestText))
	large(1, netproto.MaxToken, "token exceeds 255 bytes", frames("auth", longestToken))
	return list
}

// badForPool are well-formed requests that a refusingPool cannot serve, or that a server refuses.
func badForPool(t *testing.T) (list []badRequest) {
	add := func(code string, limit int64, text string, frames [][]byte) {
		list = append(list, badRequest{frames: frames, code: code, limit: limit, text: text})
	}
	bad := func(text string, frames [][]byte) { add(api.RefusalBadRequest, 0, text, frames) }
	const otherLen = "hashes of another length than the pool's: hash_len 16, the pool has 32"
	for _, tag := range lookingUp {
		bad(otherLen, lookupFrames(tag, 128, "\x00\x10", refusedKeys))
		add(api.RefusalTooLarge, refusingMaxHashes, "17 hashes, at most 16", lookupFrames(tag, 128, hashLen32, longestBlob))
	}
	bad(otherLen, frames("renew", "\x00\x10", refusedKeys))
	add(api.RefusalTooLarge, refusingMaxHashes, "17 hashes, at most 16", frames("renew", hashLen32, longestBlob))
	add(api.RefusalUnsupported, 0, lookup.ErrRenew.Error(), frames("renew", hashLen32, refusedKeys))
	from := func(tag string, tokens, start uint32, hashes int) [][]byte {
		return frames(tag, u32s(tokens, start), hashLen32, refusedKeys[:32*hashes])
	}
	for _, tag := range lookingUp[1:] {
		bad("start_token 16 is no multiple of 64, the pool's scheduler_block_size", from(tag, 128, 16, 7))
		bad("start_token 64 is beyond num_tokens 63", from(tag, 63, 64, 0))
		bad("start_token 64 is beyond num_tokens 0", from(tag, 0, 64, 0))
		add(api.RefusalTooLarge, refusingMaxHashes, "17 hashes, at most 16", from(tag, 272, 256, 1))
		add(api.RefusalTooLarge, refusingMaxHashes, "268435452 hashes, at most 16", from(tag, 1<<32-1, 1<<32-64, 0))
	}
	bad("too many hashes: 127 tokens have 7 from start_token 0 on, and there are 8", from("lookup_from", 127, 0, 8))
	bad("too many hashes: 127 tokens have 3 from start_token 64 on, and there are 4: if they are the whole prompt's, leave out the first 4",
		from("lookup_from", 127, 64, 4))
	const noGroup = "group or rank is outside the configured pool: group 2, tp_rank 0, pp_rank 0, pcp_rank 0: the pool has group 0 to 1"
	for _, tag := range []string{"store", "evict"} {
		bad(otherLen, frames(tag, refusedRank, "\x00\x10", refusedKeys))
		bad(noGroup, frames(tag, "\x00\x02\x00\x00\x00\x00", hashLen32, refusedKeys))
	}
	prompt := func(numbers, ranks, states string, keys []byte) [][]byte {
		return frames("store_prompt", numbers, ranks, states, hashLen32, keys)
	}
	bad("the prompt cannot be stored: group 0 stores chunk 1, whose hash 7 is missing: the request has the hashes 0 to 6", prompt(wholePrompt, "", "", refusedKeys[:7*32]))
	bad(otherLen, frames("store_prompt", wholePrompt, "", "", "\x00\x10", refusedKeys))
	bad("the prompt cannot be stored: a state of group 0, which is no mamba group", prompt(wholePrompt, "", string(u32s(0, 64)), refusedKeys))
	bad("group or rank is outside the configured pool: group 0, tp_rank 1, pp_rank 0, pcp_rank 0: the group has tp_rank 0 to 0, pp_rank 0 to 0, pcp_rank 0 to 0",
		prompt(wholePrompt, "\x00\x01\x00\x00\x00\x00", "", refusedKeys))
	bad("num_tokens 65 is no multiple of 64", frames("lookup_mask", 65))
	bad("num_tokens 65 is no multiple of 64", frames("store_mask", u32s(65, 0, 0)))
	add(api.RefusalTooLarge, api.MaxRuns, "the masks have more than 32768 runs of true entries: ask about fewer tokens", frames("lookup_mask", 64*(api.MaxRuns+1)))

	add(api.RefusalNoPool, 0, `no pool of this name: "none"; describe it, or configure it under pools`, frames("pool", `{"name":"none"}`))
	add(api.RefusalUnsupported, 0, errNotAccepted.Error(), frames("pool", `{"name":"new","model_name":"m"}`))
	bad("the description of the pool cannot be read: EOF", frames("pool", " "))
	bad("the description of the pool cannot be read: tp_size is a JSON string, want a whole number", frames("pool", `{"tp_size":"2"}`))
	unknownKind := new(coordinator.Kind).UnmarshalText([]byte("x"))
	require.ErrorContains(t, unknownKind, `unknown kind "x", want one of full_attention`)
	bad("the description of the pool cannot be read: "+unknownKind.Error(), frames("pool", `{"groups":[{"kind":"x"}]}`))
	bad(`the description of the pool cannot be read: unknown field "tp"`, frames("pool", `{"tp":2}`))
	bad(CheckPoolName("a b").Error(), frames("pool", `{"name":"a b"}`))
	add(api.RefusalTooLarge, description.MaxRanks, "too many groups and ranks for a described pool: 5000, at most 4096", frames("pool", `{"tp_size":5000,"num_kv_head":5000}`))
	add(api.RefusalTooLarge, description.MaxText, "model_name is too long for a described pool: 513 bytes, at most 512", frames("pool", `{"model_name":"`+longestText[:513]+`"}`))
	bad("the described pool: block_size 24 is not a multiple of hash_block_size 16", frames("pool", `{"groups":[{"block_size":24}]}`))

	add(api.RefusalNotAuthenticated, 0, "not authenticated: no such token", authFrames("nobody"))
	return list
}

// refusing is a server whose refusals are checked, with what it stores.
type refusing struct {
	*Server
	vllm  string
	store *lookuptest.KeyStore // nil over memory
}

// overAll runs a test over pools of two releases, over the memory index and over a store.
func overAll(t *testing.T, limits Limits, test func(t *testing.T, s refusing)) {
	for _, vllm := range []string{"0.28.0", "0.29.0"} {
		for _, over := range []string{"memory", "store"} {
			t.Run(vllm+" over "+over, func(t *testing.T) {
				s := refusing{vllm: vllm}
				cfg := lookup.ServiceConfig{Pool: refusingPool(vllm)}
				if over == "store" {
					s.store = &lookuptest.KeyStore{}
					cfg.Backend, cfg.Remote = s.store, patient
				}
				service, err := lookup.NewService(cfg)
				require.NoError(t, err)
				s.Server, err = New(service, Config{Loops: 2, Limits: limits, Listeners: []Listener{
					{Address: "tcp://127.0.0.1:0", Settings: settingsOf(t, access.All, tokenOf("all", access.All))}, {Address: "tcp://127.0.0.1:0", Settings: settingsOf(t, access.Ping)},
				}})
				require.NoError(t, err)
				startTest(t, s.Server)
				test(t, s)
			})
		}
	}
}

// dial connects in a dialect, as a peer of a listener.
func (s refusing) dial(t *testing.T, listener int, zmtp bool) *lookuptest.Peer {
	t.Helper()
	p := lookuptest.DialPeer(t, s.Addrs()[listener])
	if zmtp {
		p.Send(t, zmtpGreeting, zmtpReady)
		p.Reads(t, zmtpAnswer)
	}
	return p
}

// check requires the refusals of bad requests in both dialects, each on a connection of its own, and that
// they are counted and have changed nothing.
func (s refusing) check(t *testing.T, listener int, list []badRequest) {
	t.Helper()
	for i := range list {
		for _, zmtp := range []bool{false, true} {
			if zmtp && len(list[i].frames) == 0 {
				continue // to REP that is no message
			}
			before, failed := s.stored(t), s.Stat().RequestsRefused
			p := s.dial(t, listener, zmtp)
			list[i].check(t, p, s.vllm, zmtp)
			require.NoError(t, p.Close())
			require.Equal(t, failed+1, s.Stat().RequestsRefused)
			require.Equal(t, before, s.stored(t), "%.20q", list[i].frames)
		}
	}
}

// stored returns what the pool holds, so that a change of it shows.
func (s refusing) stored(t *testing.T) any {
	t.Helper()
	st := s.pools.own.service.Stat()
	hit, err := s.pools.own.service.Lookup(t.Context(), 129, coordinator.NewHashes(refusedKeys, 32))
	require.NoError(t, err)
	var keys map[string]bool
	if s.store != nil {
		keys = maps.Clone(s.store.Keys)
	}
	return []any{hit.Tokens, st.Entries, st.Stored, st.Evicted, keys}
}

// Each bad request gets its code, over memory and over a store, in both dialects and with replies of both
// forms. What is refused with 00 has changed nothing.
func TestRefusalCodes(t *testing.T) {
	overAll(t, Limits{MaxHashes: refusingMaxHashes}, func(t *testing.T, s refusing) {
		s.check(t, 0, badFrames()) // of an empty pool
		s.check(t, 0, badForPool(t))
		lookuptest.StorePrefix(t, s.pools.own.service, refusedKeys, 4)
		s.check(t, 0, slices.DeleteFunc(badFrames(), func(bad badRequest) bool {
			return !slices.Contains([]string{"store", "evict", "store_prompt", "reset_rank"}, bad.name())
		}))
		s.check(t, 0, badForPool(t))
	})
}

// Up to vLLM 0.26.0 the tokens of a lookup are a multiple of the alignment.
func TestRefusalOfUnaligned(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		s := refusing{Server: startWith(t, store, Settings{}), vllm: "0.24.0", store: store}
		const text = " is no multiple of 16, which vLLM up to 0.26.0 sends: set pool.vllm to the engine's release"
		lowered := frames("lookup", "\x01\x00\x00\x00\x00\x00\x00\x00\x21", hashLen32, refusedKeys)
		list := []badRequest{{frames: lowered, text: "num_tokens" + text}}
		for _, tag := range lookingUp {
			list = append(list, badRequest{frames: lookupFrames(tag, 17, hashLen32, refusedKeys[:32]), text: "num_tokens 17" + text})
		}
		for _, bad := range list {
			bad.code = api.RefusalBadRequest
			for _, zmtp := range []bool{false, true} {
				bad.check(t, s.dial(t, 0, zmtp), s.vllm, zmtp)
			}
		}
	})
}

// What only one kind of pool refuses.
func TestRefusalCodesOfOneBackend(t *testing.T) {
	overAll(t, Limits{}, func(t *testing.T, s refusing) {
		if s.store != nil {
			s.check(t, 0, []badRequest{{frames: frames("reset_rank", refusedRank), code: api.RefusalUnsupported, text: lookup.ErrResetRank.Error()}})
			return
		}
		s.check(t, 0, []badRequest{
			{frames: frames("reset_rank", "\x00\x02\x00\x00\x00\x00"), code: api.RefusalBadRequest, text: "group or rank is outside the configured pool: group 2, tp_rank 0, pp_rank 0, pcp_rank 0: the pool has group 0 to 1"},
		})
	})
}

// A description that differs is refused with the fields, whose values are JSON.
func TestRefusalOfOtherPool(t *testing.T) {
	overAll(t, Limits{}, func(t *testing.T, s refusing) {
		pool := refusingPool(s.vllm)
		pool.TPSize, pool.NumKVHead, pool.ModelName = 2, 2, "m"
		description, err := json.Marshal(pool)
		require.NoError(t, err)
		s.check(t, 0, []badRequest{{
			frames: frames("pool", description), code: api.RefusalPoolDiffers,
			text: `the description differs from the pool that is configured: model_name is none, described as "m"; num_kv_head is 1, described as 2; tp_size is 1, described as 2`,
			more: `,"differences":[{"field":"model_name","configured":null,"described":"m"},{"field":"num_kv_head","configured":1,"described":2},{"field":"tp_size","configured":1,"described":2}]`,
		}})
	})
}

// A peer without permission is told so in three frames, in ZMTP for what the reference does not ask.
func TestRefusalOfNotAllowed(t *testing.T) {
	overAll(t, Limits{}, func(t *testing.T, s refusing) {
		var list []badRequest
		for _, frames := range requestsOf(refusingPool(s.vllm)) {
			if name := string(frames[0]); name != "ping" {
				list = append(list, badRequest{frames: frames, code: api.RefusalNotAllowed, text: "not allowed: " + name + "; this connection may: ping"})
			}
		}
		list = append(list, badRequest{frames: authFrames("all"), code: api.RefusalNotAuthenticated, text: "not authenticated: this listener has no tokens"})
		s.check(t, 1, list)
	})
}

// Without a pool what concerns blocks is refused, whatever release the server's other pools have.
func TestRefusalOfNoPool(t *testing.T) {
	named, err := memoryService(refusingPool("0.29.0"))
	require.NoError(t, err)
	s := refusing{Server: startPools(t, nil, Config{Pools: []ServedPool{{Name: "named", Service: named}}})}
	for _, zmtp := range []bool{false, true} {
		p := s.dial(t, 0, zmtp)
		for _, frames := range requestsOf(blocks16.Pool) {
			if name := string(frames[0]); !slices.Contains([]string{"ping", "stat", "pool"}, name) {
				bad := badRequest{frames: frames, code: api.RefusalNoPool, text: errNoPool.Error()}
				bad.check(t, p, "", zmtp)
			}
		}
	}
	require.Zero(t, named.Stat().Stored)
}

// heldServer is a server all of whose workers for jobs without a store wait until release is called.
func heldServer(t *testing.T, cfg lookup.ServiceConfig, limits Limits) (server *Server, release func()) {
	t.Helper()
	service, err := lookup.NewService(cfg)
	require.NoError(t, err)
	holding, open := make(chan struct{}, 64), make(chan struct{})
	server = startPools(t, service, Config{Limits: limits, AcceptPool: func(coordinator.Pool) (*lookup.Service, error) {
		holding <- struct{}{}
		<-open
		return nil, errors.New("released")
	}})
	release = sync.OnceFunc(func() { close(open) })
	t.Cleanup(release)
	for i := range numComputing() {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		p.Send(t, lookuptest.Encode(frames("pool", fmt.Sprintf(`{"model_name":"held-%d"}`, i))...))
		<-holding
	}
	return server, release
}

// Requests beyond those that may be in flight are refused at once, a lookup too, and change nothing.
func TestRefusalOfBusy(t *testing.T) {
	for _, vllm := range []string{"0.28.0", "0.29.0"} {
		for _, store := range []*lookuptest.KeyStore{nil, {}} {
			cfg := lookup.ServiceConfig{Pool: refusingPool(vllm)}
			if store != nil {
				cfg.Backend, cfg.Remote = store, patient
			}
			server, release := heldServer(t, cfg, Limits{MaxInFlight: 1})
			s := refusing{Server: server, vllm: vllm, store: store}
			before := s.stored(t)
			var peers []*lookuptest.Peer
			for _, zmtp := range []bool{false, true} {
				p := s.dial(t, 0, zmtp)
				peers = append(peers, p)
				p.Send(t, lookuptest.Encode([]byte("\x00held"), nil, []byte("lookup_mask"), u32s(64)))
				for _, frames := range requestsOf(refusingPool(vllm)) {
					bad := badRequest{frames: frames, code: api.RefusalBusy, text: "the server is busy, try again: 1 requests of this connection have no reply yet"}
					bad.refused(t, p, vllm, zmtp)
				}
			}
			require.Equal(t, before, s.stored(t))
			require.EqualValues(t, 2*16, server.Stat().Busy)
			release()
			for _, p := range peers {
				require.Equal(t, []string{"\x00held", "", "\x01"}, texts(p.Next(t))[:3])
			}
		}
	}
}

// What a store refuses or fails is told with its code, and what was done in part begins with 04.
func TestRefusalOfStore(t *testing.T) {
	partly := fmt.Errorf("%w: the disk is full", backend.ErrPartlyDone)
	rank := "\xff\xff\xff\xff\xff\xff\xff\xff" // a reset, which stores can do
	for _, c := range []struct {
		err        error
		code, text string
	}{
		{lookuptest.ErrStore, api.RefusalStoreFailed, "the test store fails"},
		{backend.ErrUnavailable, api.RefusalStoreFailed, "unavailable"},
		{context.DeadlineExceeded, api.RefusalStoreFailed, "context deadline exceeded"},
		{backend.ErrReadOnly, api.RefusalStoreFailed, "read only"},
		{partly, api.RefusalPartlyDone, "done in part: some keys were changed: the disk is full"},
	} {
		overAll(t, Limits{}, func(t *testing.T, s refusing) {
			if s.store == nil {
				return
			}
			s.store.Before = func(_ context.Context, op string, _ []string) error {
				if op != "exists" {
					return c.err
				}
				return nil
			}
			list := []badRequest{
				{frames: frames("store", refusedRank, hashLen32, refusedKeys), text: "store: "},
				{frames: frames("evict", refusedRank, hashLen32, refusedKeys), text: "evict: "},
				{frames: frames("reset"), text: "reset: "},
				{frames: frames("reset_rank", rank), text: "reset: "},
			}
			if c.code != api.RefusalPartlyDone {
				list = append(list, badRequest{frames: frames("store_prompt", wholePrompt, "", "", hashLen32, refusedKeys), text: "store: "})
			}
			for i := range list {
				list[i].code, list[i].text = c.code, list[i].text+c.text
			}
			s.check(t, 0, list)
			if c.code == api.RefusalPartlyDone {
				return // nothing is changed by what only reads
			}
			s.store.Before = func(context.Context, string, []string) error { return c.err }
			s.check(t, 0, []badRequest{{frames: lookupFrames("explain", 128, hashLen32, refusedKeys), code: c.code, text: c.text}})
		})
	}
}

// A store with a wrong frame behind its keys has stored them over the memory index, and says so. Over a
// store nothing has happened.
func TestRefusalBehindTheKeys(t *testing.T) {
	overAll(t, Limits{}, func(t *testing.T, s refusing) {
		for _, zmtp := range []bool{false, true} {
			keys := lookuptest.Chain(fmt.Sprint(zmtp), 8, 32)
			for _, bad := range []badRequest{
				{frames: frames("store", refusedRank, hashLen32, keys[:128], keys[:32], ""), frame: 5, text: "frame 5 is one too many for store"},
				{frames: frames("store", refusedRank, hashLen32, keys[128:], "short"), frame: 4, text: "the key behind the blob is 5 bytes, want 32"},
			} {
				before, stored := s.Stat().Entries, int64(0)
				bad.code = api.RefusalBadRequest
				if s.store == nil {
					bad.code, bad.text = api.RefusalPartlyDone, "done in part: 4 keys: "+bad.text
					stored = 4
				}
				bad.check(t, s.dial(t, 0, zmtp), s.vllm, zmtp)
				require.Equal(t, before+stored, s.Stat().Entries)
				if s.store != nil {
					require.Empty(t, s.store.Keys)
				}
			}
		}
	})
}

// A prompt of which a rank could not be stored is told with its parts.
func TestRefusalOfParts(t *testing.T) {
	pool := refusingPool("0.29.0")
	pool.TPSize = 2
	store := &lookuptest.KeyStore{Before: func(_ context.Context, op string, keys []string) error {
		if op == "store" && strings.Contains(keys[0], "@tp_rank:1@") {
			return backend.ErrUnavailable
		}
		return nil
	}}
	s := refusing{Server: startServer(t, lookup.ServiceConfig{Pool: pool, Backend: store, Remote: patient}, Limits{}), vllm: "0.29.0"}
	bad := badRequest{
		frames: frames("store_prompt", wholePrompt, "", "", hashLen32, refusedKeys), code: api.RefusalPartlyDone,
		text: "2 parts of the prompt were not stored, the first is group 0, tp_rank 1, pp_rank 0, pcp_rank 0, 2 chunks from 0 on: store: unavailable",
		more: `,"parts":[{"group":0,"tp_rank":1,"pp_rank":0,"pcp_rank":0,"first_chunk":0,"chunks":2,"error":"store: unavailable"},` +
			`{"group":1,"tp_rank":1,"pp_rank":0,"pcp_rank":0,"first_chunk":3,"chunks":2,"error":"store: unavailable"}]`,
	}
	for _, zmtp := range []bool{false, true} {
		bad.check(t, s.dial(t, 0, zmtp), s.vllm, zmtp)
	}
}

// A request that needs more memory for its hashes than the server ever gives one is too large.
func TestRefusalOfMemory(t *testing.T) {
	for _, store := range []*lookuptest.KeyStore{nil, {}} {
		cfg := lookup.ServiceConfig{Pool: refusingPool("0.29.0")}
		if store != nil {
			cfg.Backend, cfg.Remote = store, patient
		}
		s := refusing{Server: startServer(t, cfg, Limits{MaxMemory: 256 << 10}), vllm: "0.29.0", store: store}
		n := 4096
		s.check(t, 0, []badRequest{{
			frames: lookupFrames("explain", 16*n, hashLen32, lookuptest.Chain("large", n, 32)), code: api.RefusalTooLarge, limit: 36 << 10,
			text: "131072 bytes of hashes, this server takes 36864 at a time (see limits.max_memory)",
		}})
	}
}
