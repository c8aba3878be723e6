package server

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

// allReplies collects all that a session writes.
type allReplies struct{ bytes.Buffer }

func (*allReplies) OutboundBuffered() int { return 0 }

// count returns the number of replies.
func (r *allReplies) count(t *testing.T) (n int) {
	t.Helper()
	for rest := r.Bytes(); len(rest) > 0; {
		flags, header, size := rest[0], 2, uint64(rest[1])
		if flags&2 != 0 { // LONG
			header, size = 9, binary.BigEndian.Uint64(rest[1:])
		}
		if rest = rest[uint64(header)+size:]; flags&1 == 0 { // no MORE
			n++
		}
	}
	return n
}

// hybridPool is a pool whose groups can disagree.
var hybridPool = coordinator.Pool{HashBlockSize: 16, Groups: []coordinator.Group{
	{Kind: coordinator.FullAttention, BlockSize: 16},
	{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 17},
	{Kind: coordinator.SlidingWindow, BlockSize: 32, SlidingWindow: 33},
}}

func serverOf(t testing.TB, pool coordinator.Pool) *Server {
	t.Helper()
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: 256 << 20}})
	require.NoError(t, err)
	server, err := New(service, Config{})
	require.NoError(t, err)
	return server
}

// storeDisagreeing stores blocks so that each group shortens the hit of the others by little.
func storeDisagreeing(t *testing.T, server *Server, n int) []byte {
	t.Helper()
	hashes := lookuptest.Chain("disagree", n, 32)
	store := func(group uint16, keep func(i int) bool, stride int) {
		var keys []byte
		for i := stride - 1; i < n; i += stride {
			if keep(i / stride) {
				keys = append(keys, hashes[i*32:(i+1)*32]...)
			}
		}
		require.NoError(t, server.service.Store(t.Context(), coordinator.GroupRank{Group: group}, coordinator.NewHashes(keys, 32)))
	}
	store(0, func(int) bool { return true }, 1)
	store(1, func(i int) bool { return i%2 == 0 }, 1)
	store(2, func(i int) bool { return i%4 < 2 }, 2)
	return hashes
}

func rawLookup(hashes []byte, hashLen int) []byte {
	n := len(hashes) / hashLen
	return append(netproto.AppendLookup(nil, nil, uint32(16*n), hashLen, len(hashes)), hashes...)
}

func rawExplain(hashes []byte, hashLen int) []byte {
	n := len(hashes) / hashLen
	return append(netproto.AppendExplain(nil, nil, uint32(16*n), hashLen, len(hashes)), hashes...)
}

func randomHashes(n, hashLen int) []byte {
	b := make([]byte, n*hashLen)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}

// hostileBursts are what a peer may send at once: cheap to send, dear to serve.
func hostileBursts(t *testing.T) map[string]struct {
	server  *Server
	burst   []byte
	replies int
} {
	type attack = struct {
		server  *Server
		burst   []byte
		replies int
	}
	all := map[string]attack{}
	blocks := func() *Server { return serverOf(t, lookuptest.Blocks16) }
	for name, msg := range map[string][]byte{
		"stat":          lookuptest.Encode([]byte("stat")),
		"reset":         lookuptest.Encode([]byte("reset")),
		"store, reset":  append(append(netproto.AppendKeys(nil, nil, netproto.TagStore, netproto.Rank{}, 2, 2), 1, 2), lookuptest.Encode([]byte("reset"))...),
		"unknown":       lookuptest.Encode([]byte("x")),
		"empty explain": rawExplain(nil, 1),
		"empty frame":   {0, 0},
		"ping":          lookuptest.Encode([]byte("ping"), make([]byte, 60_000)),
		"pool":          lookuptest.Encode([]byte("pool"), []byte(`{"vllm":"0.28.0","model_name":"m","tp_size":64}`)),
	} {
		n := max(4, 32<<10/len(msg))
		replies := n
		if name == "store, reset" {
			replies = 2 * n
		}
		all[name] = attack{blocks(), bytes.Repeat(msg, n), replies}
	}
	all["store of short keys"] = attack{blocks(), append(netproto.AppendKeys(nil, nil, netproto.TagStore, netproto.Rank{}, 2, 64<<10), randomHashes(32<<10, 2)...), 1}
	all["store"] = attack{blocks(), append(netproto.AppendKeys(nil, nil, netproto.TagStore, netproto.Rank{}, 32, 1<<20), randomHashes(32<<10, 32)...), 1}
	all["explain of short hashes"] = attack{blocks(), rawExplain(randomHashes(128<<10, 1), 1), 1}
	all["explain of random hashes"] = attack{blocks(), rawExplain(randomHashes(128<<10, 32), 32), 1}
	hybrid := serverOf(t, hybridPool)
	hashes := storeDisagreeing(t, hybrid, 1<<17)
	all["disagreeing groups"] = attack{hybrid, rawLookup(hashes, 32), 1}
	all["disagreeing groups, explained"] = attack{hybrid, rawExplain(hashes, 32), 1}
	all["disagreeing groups, planned"] = attack{hybrid, append(netproto.AppendPlan(nil, nil, 16<<17, 32, len(hashes)), hashes...), 1}
	window := serverOf(t, lookuptest.WindowPool)
	all["masks of many runs"] = attack{window, bytes.Repeat(maskOf("", netproto.TagLookupMask, netproto.Prompt{NumTokens: 64 * netproto.MaxRuns / 2}), 4), 4}
	all["masks of too many runs"] = attack{window, bytes.Repeat(maskOf("", netproto.TagLookupMask, netproto.Prompt{NumTokens: 1<<32 - 64}), 40), 40}
	prompt := api.PromptStore{NumTokens: 16 << 15}
	all["prompt"] = attack{serverOf(t, hybridPool), promptRequest(t, prompt, randomHashes(1<<15, 32), 32), 1}
	wide := serverOf(t, coordinator.Pool{HashBlockSize: 16, TPSize: 8192, Groups: hybridPool.Groups})
	for i, hashes := 0, randomHashes(256, 2); i < 256; i++ { // each of its own set of ranks
		at := coordinator.GroupRank{TPRank: uint16(i)}
		require.NoError(t, wide.service.Store(t.Context(), at, coordinator.NewHashes(hashes[2*i:2*i+2], 2)))
	}
	prompt.NumTokens = 16 << 8
	all["prompt on many ranks"] = attack{wide, bytes.Repeat(promptRequest(t, prompt, randomHashes(256, 2), 2), 4), 4}
	return all
}

// mostOver bounds by how much a turn exceeds its share: the last piece of work is not cut. The
// largest are that of MaxPiece hashes which are looked up one by one in each group set, and that
// of a pool's description.
const mostOver = netproto.MaxPiece*3*40 + turnShare

// TestTurnsAreBounded serves hostile bursts turn by turn. No turn exceeds its share by more than
// one piece of work, and all requests are answered as in a single turn.
func TestTurnsAreBounded(t *testing.T) {
	for name, attack := range hostileBursts(t) {
		t.Run(name, func(t *testing.T) {
			var got allReplies
			ses := openSession(attack.server, &got, nil)
			ses.queue = &turnQueue{signal: -1}
			turns, most := 0, 0
			endTurn := func() {
				turns++
				most = max(most, turnShare-ses.workLeft)
			}
			for rest := attack.burst; len(rest) > 0; {
				n := min(len(rest), readBuffer)
				require.NoError(t, ses.receive(rest[:n]))
				rest = rest[n:]
				endTurn()
				for ses.waiting.Load() {
					require.NoError(t, ses.takeTurn())
					endTurn()
				}
			}
			t.Logf("%d turns, the longest of %d units", turns, most)
			require.LessOrEqual(t, most, turnShare+mostOver)
			require.Greater(t, turns, 1)
			require.Equal(t, attack.replies, got.count(t))
			work, _ := attack.server.longestTurn()
			require.GreaterOrEqual(t, work, int64(most), "another burst has had the same server")
			if name == "stat" || strings.HasPrefix(name, "store, reset") {
				return // its counters differ; the first burst has changed the index
			}
			var whole allReplies
			require.NoError(t, openSession(attack.server, &whole, nil).receive(attack.burst))
			require.Equal(t, whole.Bytes(), got.Bytes())
		})
	}
}

// TestTurnsAlternate has several sessions wait for turns: they go round.
func TestTurnsAlternate(t *testing.T) {
	server := serverOf(t, lookuptest.Blocks16)
	queue := &turnQueue{signal: -1}
	burst := bytes.Repeat(lookuptest.Encode([]byte("stat")), 100)
	got := make([]allReplies, 3)
	for i := range got {
		ses := openSession(server, &got[i], nil)
		ses.queue = queue
		require.NoError(t, ses.receive(burst))
		require.True(t, ses.waiting.Load())
	}
	after := got[0].Len()
	for round := range 5 {
		for i := range got {
			before := got[i].Len()
			server.handleTurn(queue)
			require.Greater(t, got[i].Len(), before, "round %d: it is the turn of session %d", round, i)
		}
	}
	require.Greater(t, got[0].Len(), after)
	for len(queue.sessions) > 0 {
		server.handleTurn(queue)
	}
	for i := range got {
		require.Equal(t, 100, got[i].count(t))
	}
}

// TestReadingIsPaused has a peer send far more than it is served: the server reads no further
// while it has bytes of this peer that wait for a turn.
func TestReadingIsPaused(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reading cannot be paused here")
	}
	server := startServer(t, lookup.ServiceConfig{Pool: lookuptest.Blocks16}, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	const stores = 8 // of 64 KiB
	msg := append(netproto.AppendKeys(nil, nil, netproto.TagStore, netproto.Rank{}, 2, 1<<16), randomHashes(1<<15, 2)...)
	sent := make(chan error, 1)
	go func() {
		_, err := p.Write(bytes.Repeat(msg, stores))
		sent <- err
	}()
	answered, most := make(chan struct{}), make(chan int64, 1)
	go func() {
		held := int64(0)
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-answered:
				tick.Stop()
				most <- held
				return
			case <-tick.C:
				held = max(held, server.heldBytes())
			}
		}
	}()
	for range stores {
		p.Next(t)
	}
	close(answered)
	require.NoError(t, <-sent)
	require.Positive(t, server.Stat().TurnsCut)
	require.Less(t, <-most, int64(4*readBuffer), "of 512 KiB")
	lookuptest.Eventually(t, "the backlog is given back, after the last reply", func() bool { return server.heldBytes() == 0 })
}

// TestPoolRequestsWait checks that a pool request, which may take milliseconds, is served in a
// turn from the queue alone: one for each round of the event loop.
func TestPoolRequestsWait(t *testing.T) {
	server := serverOf(t, lookuptest.Blocks16)
	queue := &turnQueue{signal: -1}
	text, err := json.Marshal(lookuptest.Blocks16)
	require.NoError(t, err)
	got := make([]allReplies, 2)
	for i := range got {
		ses := openSession(server, &got[i], nil)
		ses.queue = queue
		require.NoError(t, ses.receive(bytes.Repeat(lookuptest.Encode([]byte("pool"), text), 2)))
		require.Zero(t, got[i].Len())
	}
	for turn, want := range [][2]int{{1, 0}, {1, 1}, {2, 1}, {2, 2}} {
		server.handleTurn(queue)
		require.Equal(t, want, [2]int{got[0].count(t), got[1].count(t)}, "turn %d", turn)
	}
	require.Empty(t, queue.sessions)
}

// TestIdleBeginsAfterTheLastTurn has a session wait for its turns for longer than IdleTimeout.
func TestIdleBeginsAfterTheLastTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := serverOf(t, lookuptest.Blocks16)
		require.NoError(t, server.SetLimits(Limits{IdleTimeout: time.Minute}))
		ses := openSession(server, new(allReplies), nil)
		ses.queue = &turnQueue{signal: -1}
		require.NoError(t, ses.receive(bytes.Repeat(lookuptest.Encode([]byte("stat")), 3)))
		require.True(t, ses.waiting.Load())
		time.Sleep(time.Hour)
		require.Equal(t, closedByPeer, server.overdue(ses, monotime.Now()))
		for ses.waiting.Load() {
			server.handleTurn(ses.queue)
		}
		require.Equal(t, closedByPeer, server.overdue(ses, monotime.Now()))
		time.Sleep(time.Minute + 1)
		require.Equal(t, closedIdleTimeout, server.overdue(ses, monotime.Now()))
	})
}
