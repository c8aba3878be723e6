package lookup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// gate holds calls of a keyStore until it is opened.
type gate struct {
	held atomic.Int64 // calls that have come to it
	open chan struct{}
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) wait(ctx context.Context) error {
	g.held.Add(1)
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// holding makes the store wait at the gate in the calls of one kind that ask for
// key; "" is any kind, and any key.
func (k *keyStore) holding(g *gate, op, key string) {
	k.before = func(ctx context.Context, called string, keys []string) error {
		if (op == "" || called == op) && (key == "" || slices.ContainsFunc(keys, func(k string) bool { return strings.HasSuffix(k, key) })) {
			return g.wait(ctx)
		}
		return nil
	}
}

// patient is a configuration in which no call runs out of time.
var patient = RemoteConfig{Timeout: patience, WriteTimeout: patience}

func startRemote(t testing.TB, store *keyStore, cfg RemoteConfig, limits Limits) *Server {
	t.Helper()
	return startServer(t, ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: cfg}, limits)
}

// requests, each with an envelope of its own or none.
func lookupOf(id string, keys []byte) []byte {
	return append(netproto.AppendLookup(nil, idEnvelope(id), uint32(len(keys)/2), 32, len(keys)), keys...)
}

func storeOf(id string, tag netproto.Tag, keys []byte) []byte {
	return append(netproto.AppendKeys(nil, idEnvelope(id), tag, Place{}, 32, len(keys)), keys...)
}

func plainOf(id string, tag netproto.Tag, frames ...[]byte) []byte {
	return netproto.AppendRequest(nil, idEnvelope(id), tag, frames...)
}

func idEnvelope(id string) []byte {
	switch id {
	case "":
		return nil
	case "bare":
		return []byte(bareDelimiter)
	}
	return encodeEnvelope("\x00" + id)
}

func (p *peer) send(t testing.TB, messages ...[]byte) {
	t.Helper()
	_, err := p.Write(slices.Concat(messages...))
	require.NoError(t, err)
}

// reply returns the next message as its id and its first body frame in hex, and
// the text of a second one.
func (p *peer) reply(t testing.TB) (id, body, text string) {
	t.Helper()
	frames := p.next(t)
	switch {
	case len(frames[0]) == 0:
		id, frames = "bare", frames[1:]
	case len(frames) > 2 && len(frames[1]) == 0:
		id, frames = string(frames[0][1:]), frames[2:]
	}
	if len(frames) > 1 {
		text = string(frames[1])
	}
	return id, fmt.Sprintf("%x", frames[0]), text
}

func (p *peer) expect(t testing.TB, want ...string) {
	t.Helper()
	for _, w := range want {
		id, body, text := p.reply(t)
		require.Equal(t, w, strings.TrimSpace(id+" "+body), text)
	}
}

func hitText(hashes int) string { return fmt.Sprintf("%08x", 16*hashes) }

// filled returns a store over which a service finds the chains.
func filled(t testing.TB, chains ...[]byte) *keyStore {
	t.Helper()
	store := &keyStore{}
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
	require.NoError(t, err)
	for _, c := range chains {
		require.NoError(t, s.Store(Place{}, c, 32))
	}
	return store
}

func TestRemoteService(t *testing.T) {
	store := &keyStore{}
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
	require.NoError(t, err)
	keys := chain("a", 100, 32)
	hashes := netproto.NewHashes(keys, 32)
	require.NoError(t, s.Store(Place{}, keys[:70*32], 32))
	hit, err := s.Lookup(1600, hashes)
	require.NoError(t, err)
	require.EqualValues(t, 1120, hit)
	require.NoError(t, s.Evict(Place{}, keys[10*32:11*32], 32))
	hit, err = s.Lookup(1600, hashes)
	require.NoError(t, err)
	require.EqualValues(t, 160, hit)
	e, err := s.Explain(1600, hashes)
	require.NoError(t, err)
	require.EqualValues(t, 160, e.HitTokens)
	require.EqualValues(t, 10, *e.Groups[0].FirstMissingBlock)
	_, err = s.Lookup(17, hashes)
	require.ErrorIs(t, err, coordinator.ErrPrecondition)
	_, err = s.Lookup(1<<64-1, hashes)
	require.ErrorIs(t, err, coordinator.ErrPrecondition)
	hit, err = s.Lookup(1<<64-16, hashes)
	require.NoError(t, err)
	require.EqualValues(t, 160, hit)
	_, err = s.Lookup(16, netproto.NewHashes(keys, 65))
	require.ErrorIs(t, err, netproto.ErrHashLen)
	require.ErrorIs(t, s.Store(Place{Group: 1}, keys, 32), ErrPlace)
	require.ErrorIs(t, s.Store(Place{}, keys[:33], 32), netproto.ErrCutKey)
	require.ErrorIs(t, s.Evict(Place{}, keys, 65), netproto.ErrHashLen)
	st := s.Stat()
	require.Equal(t, "keys", st.Backend)
	require.EqualValues(t, 70, st.Stored)
	require.EqualValues(t, 1, st.Evicted)
	require.EqualValues(t, 3, st.Lookups)
	require.EqualValues(t, 1440, st.HitTokens)
	require.Equal(t, "closed", st.BackendState)
	require.NoError(t, s.Reset())
	hit, err = s.Lookup(1600, hashes)
	require.NoError(t, err)
	require.Zero(t, hit)

	store.before = func(context.Context, string, []string) error { return errStore }
	hit, err = s.Lookup(1600, hashes)
	require.NoError(t, err)
	require.Zero(t, hit, "fails open")
	require.ErrorIs(t, s.Reset(), errStore)
	_, err = s.Explain(1600, hashes)
	require.ErrorIs(t, err, errStore)
	require.EqualValues(t, 3, s.Stat().BackendErrors)
}

// TestRemoteKeys checks the keys of stores against those that a lookup asks, also
// for ranks that it does not.
func TestRemoteKeys(t *testing.T) {
	for _, revision := range []coordinator.Revision{coordinator.Revision20260620, coordinator.Revision20260817} {
		pool := coordinator.Pool{ModelName: "org/model", CachePrefix: "p", TPSize: 4, PPSize: 2, PCPSize: 2, DCPSize: 2, NumKVHead: 4, Revision: revision}
		coord, err := coordinator.New(pool)
		require.NoError(t, err)
		store := &keyStore{}
		s, err := NewService(ServiceConfig{Pool: pool, Backend: store, Remote: patient})
		require.NoError(t, err)
		hash := chain("a", 1, 32)
		for r, rank := range coord.Ranks(0) {
			require.NoError(t, s.Store(Place{TPRank: uint16(rank.TP), PPRank: uint16(rank.PP), PCPRank: uint16(rank.PCP)}, hash, 32))
			require.True(t, store.keys[string(coord.AppendKey(nil, 0, r, hash))], "%v", rank)
		}
		require.Len(t, store.keys, len(coord.Ranks(0)))
	}
}

func TestRemoteOvertaking(t *testing.T) {
	slow, fast := chain("slow", 8, 32), chain("fast", 4, 32)
	store, g := filled(t, slow, fast), newGate()
	store.holding(g, "exists", fmt.Sprintf("%x", slow[:32]))
	p := dialPeer(t, startRemote(t, store, patient, Limits{}))
	p.send(t, lookupOf("a", slow), lookupOf("b", fast), plainOf("c", netproto.TagPing), lookupOf("d", nil))
	got := map[string]string{}
	for range 3 {
		id, body, _ := p.reply(t)
		got[id] = body
	}
	require.Equal(t, map[string]string{"b": hitText(4), "c": "01", "d": hitText(0)}, got)
	close(g.open)
	p.expect(t, "a "+hitText(8))
}

func TestRemoteEqualEnvelopes(t *testing.T) {
	for _, id := range []string{"", "same"} {
		slow, fast := chain("slow", 8, 32), chain("fast", 4, 32)
		store, g := filled(t, slow, fast), newGate()
		store.holding(g, "exists", fmt.Sprintf("%x", slow[:32]))
		server := startRemote(t, store, patient, Limits{})
		p := dialPeer(t, server)
		other := id
		if id == "" {
			other = "bare" // none and the bare delimiter count as equal
		}
		p.send(t, lookupOf(id, slow), lookupOf(other, fast), plainOf(id, netproto.TagPing, []byte("echo")),
			plainOf(id, netproto.TagUnknown), plainOf(other, netproto.TagStat), lookupOf(id, fast), plainOf("end", netproto.TagPing))
		p.expect(t, "end 01")
		eventually(t, "the fast lookups have been asked", func() bool { return server.service.lookups.Load() == 2 })
		close(g.open)
		var got []string
		for range 6 {
			_, body, _ := p.reply(t)
			got = append(got, body)
		}
		require.Equal(t, []string{hitText(8), hitText(4), "01", "00", "01", hitText(4)}, got)
		eventually(t, "nothing is left", func() bool { return server.flying.Load() == 0 })
	}
}

// TestRemoteLookupWaitsForReset sends a lookup behind a reset that takes long.
func TestRemoteLookupWaitsForReset(t *testing.T) {
	keys := chain("a", 8, 32)
	store, g := filled(t, keys), newGate()
	store.holding(g, "reset", "")
	p := dialPeer(t, startRemote(t, store, patient, Limits{}))
	p.send(t, plainOf("reset", netproto.TagReset), lookupOf("after", keys), plainOf("stat", netproto.TagStat), plainOf("ping", netproto.TagPing))
	p.expect(t, "ping 01")
	eventually(t, "the reset has begun", func() bool { return g.held.Load() == 1 })
	require.EqualValues(t, 2, store.calls.Load(), "the first store and the reset")
	close(g.open)
	got := map[string]string{}
	for range 3 {
		id, body, _ := p.reply(t)
		got[id] = body
	}
	require.Equal(t, map[string]string{"reset": "01", "after": hitText(0), "stat": "01"}, got)
}

// TestRemoteLookupGivesUpOnReset has a reset take longer than lookups may.
func TestRemoteLookupGivesUpOnReset(t *testing.T) {
	keys := chain("a", 8, 32)
	store, g := filled(t, keys), newGate()
	store.holding(g, "reset", "")
	server := startRemote(t, store, RemoteConfig{Timeout: 20 * time.Millisecond, WriteTimeout: 2 * patience}, Limits{})
	p := dialPeer(t, server)
	p.send(t, plainOf("reset", netproto.TagReset), lookupOf("after", keys),
		append(netproto.AppendExplain(nil, idEnvelope("why"), 128, 32, len(keys)), keys...), plainOf("reset", netproto.TagReset))
	p.expect(t, "after "+hitText(0))
	id, body, text := p.reply(t)
	require.Equal(t, "why 00", id+" "+body)
	require.Contains(t, text, "deadline exceeded")
	require.Zero(t, server.service.remote.bytes.Load())
	require.EqualValues(t, 2, server.Stat().BackendTimeouts)
	require.EqualValues(t, 2, server.Stat().InFlight)
	close(g.open)
	p.expect(t, "reset 01", "reset 01")
}

// TestRemoteResetWaitsForLookup is the other way round.
func TestRemoteResetWaitsForLookup(t *testing.T) {
	keys := chain("a", 8, 32)
	store, g := filled(t, keys), newGate()
	store.holding(g, "exists", "")
	p := dialPeer(t, startRemote(t, store, patient, Limits{}))
	p.send(t, lookupOf("before", keys), plainOf("reset", netproto.TagReset), plainOf("ping", netproto.TagPing))
	p.expect(t, "ping 01")
	eventually(t, "the lookup has begun", func() bool { return g.held.Load() == 1 })
	require.Zero(t, store.resets.Load())
	close(g.open)
	p.expect(t, "before "+hitText(8), "reset 01")
}

// TestRemoteAgreesWithSequence sends random requests without waiting, over a store
// that is randomly slow, and compares with a memory service asked one by one.
func TestRemoteAgreesWithSequence(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		store := &keyStore{}
		store.before = func(context.Context, string, []string) error {
			if d := time.Duration(rand.IntN(400)) * time.Microsecond; d > 200*time.Microsecond {
				<-time.After(d)
			}
			return nil
		}
		model, err := NewService(blocks16)
		require.NoError(t, err)
		p := dialPeer(t, startRemote(t, store, patient, Limits{}))
		chains := [][]byte{chain("a", 20, 32), chain("b", 20, 32)}
		want := map[string][]string{}
		var all []byte
		const requests = 300
		for i := range requests {
			id := fmt.Sprint(i)
			if rng.IntN(3) == 0 {
				id = fmt.Sprintf("shared%d", rng.IntN(3))
			}
			keys := chains[rng.IntN(2)]
			from := 32 * rng.IntN(20)
			to := from + 32*(1+rng.IntN((len(keys)-from)/32))
			body := "01"
			switch rng.IntN(10) {
			case 0:
				all = append(all, plainOf(id, netproto.TagReset)...)
				require.NoError(t, model.Reset())
			case 1, 2, 3:
				all = append(all, storeOf(id, netproto.TagStore, keys[:to])...)
				require.NoError(t, model.Store(Place{}, keys[:to], 32))
			case 4:
				all = append(all, storeOf(id, netproto.TagEvict, keys[from:to])...)
				require.NoError(t, model.Evict(Place{}, keys[from:to], 32))
			case 5:
				all = append(all, plainOf(id, netproto.TagPing)...)
			default:
				all = append(all, lookupOf(id, keys)...)
				hit, err := model.Lookup(uint64(len(keys)/2), netproto.NewHashes(keys, 32))
				require.NoError(t, err)
				body = fmt.Sprintf("%08x", hit)
			}
			want[id] = append(want[id], body)
		}
		go func() {
			for len(all) > 0 {
				n := min(len(all), 1+rng.IntN(5000))
				_, _ = p.Write(all[:n])
				all = all[n:]
			}
		}()
		got := map[string][]string{}
		for range requests {
			id, body, _ := p.reply(t)
			got[id] = append(got[id], body)
		}
		require.Equal(t, want, got, "seed %d", seed)
	}
}

func TestRemoteTimeout(t *testing.T) {
	keys := chain("a", 8, 32)
	store, g := filled(t, keys), newGate() // never opened
	store.holding(g, "", "")
	const timeout = 50 * time.Millisecond
	server := startRemote(t, store, RemoteConfig{Timeout: timeout, WriteTimeout: timeout}, Limits{})
	p := dialPeer(t, server)
	begun := time.Now()
	p.send(t, lookupOf("", keys))
	p.expect(t, hitText(0))
	require.GreaterOrEqual(t, time.Since(begun), timeout)
	require.Less(t, time.Since(begun), patience/2)
	p.send(t, append(netproto.AppendExplain(nil, nil, 128, 32, len(keys)), keys...))
	_, body, text := p.reply(t)
	require.Equal(t, "00", body, "an explanation of nothing would mislead")
	require.Contains(t, text, "deadline exceeded")
	p.send(t, plainOf("", netproto.TagReset))
	_, body, text = p.reply(t)
	require.Equal(t, "00", body)
	require.Contains(t, text, "reset: ")
	st := server.Stat()
	require.EqualValues(t, 3, st.BackendTimeouts)
	require.Zero(t, st.BackendErrors)
}

// TestRemoteQueuedPastDeadline has a lookup wait for a worker for all of its time.
func TestRemoteQueuedPastDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: &keyStore{}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		time.Sleep(time.Second)
		hit, err := s.askRemote(ctx, 16, 1, netproto.NewHashes(chain("a", 1, 32), 32))
		require.NoError(t, err)
		require.Zero(t, hit)
		require.EqualValues(t, 1, s.Stat().BackendTimeouts)
		require.Equal(t, "closed", s.Stat().BackendState)
		require.Zero(t, s.remote.breaker.Counts().Requests, "the backend is not to blame")
	})
}

// TestRemoteExplainTakesItsTurn has an explain wait for a processor for all of its
// time: it builds no keys then.
func TestRemoteExplainTakesItsTurn(t *testing.T) {
	keys := chain("a", 8192, 32)
	hashes := netproto.NewHashes(keys, 32)
	synctest.Test(t, func(t *testing.T) {
		store := &keyStore{}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store})
		require.NoError(t, err)
		for range cap(s.remote.cpu) {
			s.remote.cpu <- struct{}{}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = s.Explain(8192*16, hashes)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, store.calls.Load())
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<10))
		require.EqualValues(t, 1, s.Stat().BackendTimeouts)
		<-s.remote.cpu
		_, err = s.Explain(8192*16, hashes)
		require.NoError(t, err)
		require.Len(t, s.remote.cpu, cap(s.remote.cpu)-1, "and gives it back")
	})
}

// TestRemoteHangsUnderLoad has a backend hang while the queue is so long that every
// lookup comes out of it with little time left.
func TestRemoteHangsUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := chain("a", 1, 32)
		store := filled(t, keys)
		hangs := false
		store.before = func(ctx context.Context, _ string, _ []string) error {
			if !hangs {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store})
		require.NoError(t, err)
		hashes := netproto.NewHashes(keys, 32)
		_, err = s.Lookup(16, hashes)
		require.NoError(t, err)
		hangs = true
		for begun := time.Now(); time.Since(begun) < 2*time.Second && s.Stat().BackendState == "closed"; {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
			_, err := s.askRemote(ctx, 16, 1, hashes)
			cancel()
			require.NoError(t, err)
		}
		require.Equal(t, "open", s.Stat().BackendState)
	})
}

// TestRemoteLittleTimeLeft has lookups come out of the queue too late for a backend
// that is well and takes ten milliseconds a call.
func TestRemoteLittleTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := chain("a", 1, 32)
		store := filled(t, keys)
		store.before = func(ctx context.Context, _ string, _ []string) error {
			select {
			case <-time.After(10 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store})
		require.NoError(t, err)
		hashes := netproto.NewHashes(keys, 32)
		for range 20 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
			hit, err := s.askRemote(ctx, 16, 1, hashes)
			cancel()
			require.NoError(t, err)
			require.Zero(t, hit)
		}
		require.Equal(t, "closed", s.Stat().BackendState, "the backend is not to blame")
		require.EqualValues(t, 20, s.Stat().BackendTimeouts)
		hit, err := s.Lookup(16, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 16, hit)
	})
}

// TestRemoteBreaker lets a backend fail and get well, in simulated time.
func TestRemoteBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := chain("a", 8, 32)
		store := filled(t, keys)
		var log bytes.Buffer
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		hashes := netproto.NewHashes(keys, 32)
		lookups := func(n int, want uint32) (calls int64) {
			t.Helper()
			before := store.calls.Load()
			for range n {
				hit, err := s.Lookup(128, hashes)
				require.NoError(t, err)
				require.Equal(t, want, hit)
			}
			return store.calls.Load() - before
		}
		dead, well := func(ctx context.Context, _ string, _ []string) error { <-ctx.Done(); return ctx.Err() }, store.before

		require.EqualValues(t, 10, lookups(10, 128))
		store.before = dead
		begun := time.Now()
		require.EqualValues(t, 5, lookups(1000, 0), "five failures in a row open it")
		require.Equal(t, 500*time.Millisecond, time.Since(begun), "the other 995 waited for nothing")
		require.Equal(t, "open", s.Stat().BackendState)
		require.EqualValues(t, 995, s.Stat().BackendRejected)
		require.ErrorIs(t, s.Reset(), backend.ErrUnavailable)

		for range 3 { // it stays open while single tries fail
			time.Sleep(1100 * time.Millisecond)
			require.EqualValues(t, 1, lookups(10, 0))
		}
		require.EqualValues(t, 1, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "backend is failing")
		require.Contains(t, log.String(), "deadline exceeded")

		store.before = well
		time.Sleep(1100 * time.Millisecond)
		require.EqualValues(t, 10, lookups(10, 128))
		require.Equal(t, "closed", s.Stat().BackendState)
		require.EqualValues(t, 2, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "backend is well again")

		for range 5 { // up and down within ten seconds
			store.before = dead
			lookups(10, 0)
			store.before = well
			time.Sleep(1100 * time.Millisecond)
			lookups(10, 128)
		}
		require.LessOrEqual(t, strings.Count(log.String(), "backend is failing"), 2, log.String())
		require.Equal(t, strings.Count(log.String(), "backend is failing"), strings.Count(log.String(), "backend is well again"))
	})
}

// TestRemoteBreakerTellsWhatLasts has a backend fail for good a moment after it was well
// again: that is told as soon as the last line is old.
func TestRemoteBreakerTellsWhatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &keyStore{}
		s, err := NewService(ServiceConfig{
			Pool: blocks16.Pool, Backend: store, Remote: RemoteConfig{BreakerFailures: 1}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		hashes := netproto.NewHashes(chain("a", 1, 32), 32)
		run := func(failing error, tries int) {
			store.before = func(context.Context, string, []string) error { return failing }
			for range tries {
				_, err := s.Lookup(16, hashes)
				require.NoError(t, err)
				time.Sleep(1100 * time.Millisecond)
			}
		}
		run(errStore, 1)
		run(nil, 1)
		run(errStore, 20)
		require.Equal(t, 2, strings.Count(log.String(), "backend is failing"), log.String())
		require.NotContains(t, log.String(), "not_told=1", "it is told now")
		run(nil, 1)
		require.Equal(t, 2, strings.Count(log.String(), "backend is well again"), log.String())
	})
}

// TestRemoteStuckLog has nobody read the log when the breaker opens: one lookup waits for
// it, and no other.
func TestRemoteStuckLog(t *testing.T) {
	for name, message := range map[string]string{"failing": "backend is failing: lookups answer 0 until it is well again", "well": "backend is well again"} {
		t.Run(name, func(t *testing.T) {
			log := stuck{slog.DiscardHandler, message, make(chan struct{}), make(chan struct{})}
			failing := errStore
			store := &keyStore{before: func(context.Context, string, []string) error { return failing }}
			cfg := RemoteConfig{Timeout: patience, BreakerFailures: 1, BreakerPause: time.Millisecond}
			s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: cfg, Logger: slog.New(log)})
			require.NoError(t, err)
			done := make(chan error, 2)
			lookup := func(name string) {
				_, err := s.Lookup(16, netproto.NewHashes(chain(name, 1, 32), 32))
				done <- err
			}
			if name == "well" {
				lookup("a")
				require.NoError(t, <-done)
				failing = nil
				time.Sleep(2 * cfg.BreakerPause)
			}
			go lookup("b")
			<-log.held
			go lookup("c")
			select {
			case err := <-done:
				require.NoError(t, err)
				require.NotEmpty(t, s.Stat().BackendState)
				close(log.free)
				require.NoError(t, <-done)
			case <-time.After(patience):
				close(log.free)
				require.Fail(t, "the log keeps a lookup waiting")
			}
		})
	}
}

// TestRemoteResetKeepsNoLookupsOut has a reset be the first call after the breaker's pause.
func TestRemoteResetKeepsNoLookupsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := chain("a", 1, 32)
		store, failing := filled(t, keys), errStore
		store.before = func(ctx context.Context, op string, _ []string) error {
			if op == "reset" && failing == nil {
				<-ctx.Done()
				return ctx.Err()
			}
			return failing
		}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: RemoteConfig{BreakerFailures: 1}})
		require.NoError(t, err)
		hashes := netproto.NewHashes(keys, 32)
		again := func(want string) {
			t.Helper()
			time.Sleep(1100 * time.Millisecond)
			require.Error(t, s.Reset())
			require.Equal(t, want, s.Stat().BackendState)
		}
		require.Error(t, s.Reset())
		require.Equal(t, "open", s.Stat().BackendState)
		again("open")
		failing = backend.ErrReadOnly
		again("closed")
		failing = errStore
		require.Error(t, s.Reset())
		failing = nil
		time.Sleep(1100 * time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- s.Reset() }()
		synctest.Wait()
		hit, err := s.Lookup(16, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 16, hit, "the backend is well")
		require.ErrorIs(t, <-done, context.DeadlineExceeded)
	})
}

// aheadOf is a context whose deadline a socket has seen, and nobody else has yet.
type aheadOf struct{ context.Context }

func (aheadOf) Deadline() (time.Time, bool) { return time.Now(), true }
func (aheadOf) Err() error                  { return nil }

// TestRemoteDeadlineOfASocket has the deadline of a call that comes out of the queue late
// be seen by the backend before the context's own timer runs.
func TestRemoteDeadlineOfASocket(t *testing.T) {
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: &keyStore{}, Remote: RemoteConfig{BreakerFailures: 1}})
	require.NoError(t, err)
	ctx := aheadOf{context.Background()}
	_, err = s.remote.call(ctx, time.Second, s.remote.breaker.Execute, func() ([]int, error) { return nil, context.DeadlineExceeded })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "closed", s.Stat().BackendState, "the backend is not to blame")
	require.EqualValues(t, 1, s.Stat().BackendTimeouts)
}

// TestRemoteBreakerOverTheWire asks a dead backend: hashes are not even copied.
func TestRemoteBreakerOverTheWire(t *testing.T) {
	keys := chain("a", 1000, 32)
	store := &keyStore{before: func(context.Context, string, []string) error { return errStore }}
	cfg := patient
	cfg.BreakerFailures, cfg.BreakerPause = 3, time.Hour
	server := startRemote(t, store, cfg, Limits{})
	p := dialPeer(t, server)
	for i := range 20 {
		p.send(t, lookupOf("", keys))
		p.expect(t, hitText(0))
		if i == 2 {
			require.EqualValues(t, 3*len(keys), roundDown(server.copied.Load(), len(keys)))
		}
	}
	require.EqualValues(t, 3, store.calls.Load())
	require.EqualValues(t, 3*len(keys), roundDown(server.copied.Load(), len(keys)))
	p.send(t, plainOf("", netproto.TagReset), plainOf("", netproto.TagPing))
	p.expect(t, "00", "01")
	c := dialTest(t, server)
	require.ErrorContains(t, c.Store(context.Background(), Place{}, keys, 32), "unavailable")
	_, err := c.Lookup(context.Background(), 17, keys, 32)
	require.ErrorIs(t, err, ErrRefused, "mistakes are refused all the same")
	st := statOf(t, c)
	require.Equal(t, "open", st.BackendState)
	require.EqualValues(t, 3, st.BackendErrors)
	require.EqualValues(t, 19, st.BackendRejected)
	require.EqualValues(t, 20, st.Lookups)
	require.EqualValues(t, 20*16000, st.MissTokens)
}

// roundDown leaves out the hashes that were cut between two reads.
func roundDown(n int64, unit int) int64 { return n / int64(unit) * int64(unit) }

func TestRemoteReadOnly(t *testing.T) {
	store := &keyStore{before: func(_ context.Context, op string, _ []string) error {
		if op == "exists" {
			return nil
		}
		return fmt.Errorf("%w: only engines fill this pool", backend.ErrReadOnly)
	}}
	cfg := patient
	cfg.BreakerFailures = 1
	server := startRemote(t, store, cfg, Limits{})
	c := dialTest(t, server)
	for range 10 {
		require.ErrorContains(t, c.Store(context.Background(), Place{}, chain("a", 2, 32), 32), "only engines fill this pool")
		require.ErrorIs(t, c.Evict(context.Background(), Place{}, chain("a", 2, 32), 32), ErrRefused)
	}
	st := statOf(t, c)
	require.Equal(t, "closed", st.BackendState)
	require.Zero(t, st.BackendErrors)
	require.Zero(t, st.Stored)
}

func TestRemoteQueueFull(t *testing.T) {
	keys := chain("a", 8, 32)
	store, g := filled(t, keys), newGate()
	store.before = func(ctx context.Context, _ string, _ []string) error { return g.wait(ctx) }
	cfg := patient
	cfg.Workers, cfg.WriteWorkers, cfg.Queue = 1, 1, 1
	server := startRemote(t, store, cfg, Limits{})
	p := dialPeer(t, server)
	p.send(t, lookupOf("1", keys))
	eventually(t, "the worker is busy", func() bool { return g.held.Load() == 1 })
	p.send(t, lookupOf("2", keys), lookupOf("3", keys), append(netproto.AppendExplain(nil, idEnvelope("4"), 128, 32, len(keys)), keys...))
	p.expect(t, "3 "+hitText(0))
	id, body, text := p.reply(t)
	require.Equal(t, "4 00", id+" "+body)
	require.Contains(t, text, ErrBusy.Error())
	require.EqualValues(t, 2, server.Stat().BackendRejected)

	peers := []*peer{dialPeer(t, server), dialPeer(t, server), dialPeer(t, server)}
	peers[0].send(t, plainOf("", netproto.TagReset))
	eventually(t, "the other worker is busy", func() bool { return g.held.Load() == 2 })
	peers[1].send(t, plainOf("", netproto.TagReset), plainOf("x", netproto.TagPing))
	peers[1].expect(t, "x 01") // so it is queued
	peers[2].send(t, plainOf("", netproto.TagReset))
	peers[2].expect(t, "00")
	close(g.open)
	peers[0].expect(t, "01")
	peers[1].expect(t, "01")
	got := map[string]bool{}
	for range 2 {
		id, _, _ := p.reply(t)
		got[id] = true
	}
	require.Equal(t, map[string]bool{"1": true, "2": true}, got)
	require.Zero(t, server.service.remote.bytes.Load())
}

// TestRemoteMaxBytes fills the room for hashes with requests half received.
func TestRemoteMaxBytes(t *testing.T) {
	keys := chain("a", 100, 32)
	store := filled(t, keys)
	cfg := patient
	cfg.MaxBytes = 5000
	server := startRemote(t, store, cfg, Limits{})
	half, p := dialPeer(t, server), dialPeer(t, server)
	msg := lookupOf("", keys)
	half.send(t, msg[:len(msg)-3])
	eventually(t, "half is there", func() bool { return server.service.remote.bytes.Load() > 3000 })
	p.send(t, lookupOf("", keys), storeOf("", netproto.TagStore, keys), lookupOf("", keys[:320]))
	p.expect(t, hitText(0), "00", hitText(10))
	require.EqualValues(t, 2, server.Stat().BackendRejected)
	half.send(t, msg[len(msg)-3:])
	half.expect(t, hitText(100))
	p.send(t, lookupOf("", keys))
	p.expect(t, hitText(100))
	half.send(t, msg[:len(msg)-3])
	eventually(t, "again", func() bool { return server.service.remote.bytes.Load() > 3000 })
	require.NoError(t, half.Close())
	eventually(t, "a lost connection leaves nothing", func() bool { return server.service.remote.bytes.Load() == 0 })
}

func TestRemoteMaxInFlight(t *testing.T) {
	keys := chain("a", 8, 32)
	store, g := filled(t, keys), newGate()
	store.holding(g, "exists", "")
	server := startRemote(t, store, patient, Limits{MaxInFlight: 2})
	p := dialPeer(t, server)
	p.send(t, lookupOf("1", keys), lookupOf("same", keys))
	for i := range 3 {
		p.send(t, lookupOf(fmt.Sprint("more", i), keys))
		id, body, text := p.reply(t)
		require.Equal(t, fmt.Sprint("more", i, " 00"), id+" "+body)
		require.Contains(t, text, ErrInFlight.Error())
	}
	const refusals = 10000
	p.send(t, bytes.Repeat(slices.Concat(plainOf("same", netproto.TagPing), plainOf("same", netproto.TagUnknown)), refusals/2),
		plainOf("end", netproto.TagPing))
	p.expect(t, "end 00")
	require.EqualValues(t, 3, server.flying.Load(), "two, and one that stands for all refusals")
	close(g.open)
	want := map[string]int{"1 " + hitText(8): 1, "same " + hitText(8): 1, "same 00": refusals}
	got := map[string]int{}
	for range refusals + 2 {
		id, body, _ := p.reply(t)
		got[id+" "+body]++
	}
	require.Equal(t, want, got)
	require.EqualValues(t, refusals+4, server.failed.Load())
	p.send(t, lookupOf("1", keys))
	p.expect(t, "1 "+hitText(8))
}

// TestRemoteHeldReplies sends large pings behind a slow lookup.
func TestRemoteHeldReplies(t *testing.T) {
	keys := chain("a", 8, 32)
	store, g := filled(t, keys), newGate()
	store.holding(g, "exists", "")
	server := startRemote(t, store, patient, Limits{MaxUnsent: 100 << 10})
	p := dialPeer(t, server)
	ping := plainOf("", netproto.TagPing, make([]byte, 60<<10))
	p.send(t, lookupOf("", keys), ping, ping, ping, ping, plainOf("end", netproto.TagPing))
	p.expect(t, "end 00")
	close(g.open)
	p.expect(t, hitText(8), "01", "01", "00", "00")
	p.send(t, ping)
	p.expect(t, "01")
}

func TestRemoteConnectionLost(t *testing.T) {
	keys := chain("a", 8, 32)
	store, g := filled(t, keys), newGate()
	store.before = func(ctx context.Context, _ string, _ []string) error { return g.wait(ctx) }
	cfg := patient
	cfg.Workers = 1
	server := startRemote(t, store, cfg, Limits{})
	calls := store.calls.Load()
	p := dialPeer(t, server)
	p.send(t, lookupOf("1", keys), lookupOf("2", keys), storeOf("3", netproto.TagStore, keys), lookupOf("4", keys), lookupOf("5", keys)[:200])
	eventually(t, "all is there", func() bool { return g.held.Load() == 1 && server.service.remote.bytes.Load() > 4*256 })
	require.EqualValues(t, 4, server.Stat().InFlight)
	require.NoError(t, p.Close())
	eventually(t, "it is gone", func() bool { return server.connections.Load() == 0 })
	eventually(t, "nothing is in flight", func() bool { return server.Stat().InFlight == 0 })
	close(g.open)
	eventually(t, "nothing is held", func() bool { return server.service.remote.bytes.Load() == 0 })
	require.EqualValues(t, 1, store.calls.Load()-calls, "what had not begun is not asked")
	p = dialPeer(t, server)
	p.send(t, lookupOf("1", keys))
	p.expect(t, "1 "+hitText(8))
}

func TestRemoteDrain(t *testing.T) {
	keys := chain("a", 8, 32)
	store, g := filled(t, keys), newGate()
	store.holding(g, "exists", "")
	server := startRemote(t, store, patient, Limits{})
	p := dialPeer(t, server)
	p.send(t, lookupOf("a", keys), plainOf("b", netproto.TagReset))
	eventually(t, "it is asked", func() bool { return g.held.Load() == 1 })
	down := make(chan error, 1)
	go func() { down <- server.Shutdown(context.Background()) }()
	eventually(t, "draining", server.shuttingDown.Load)
	select {
	case err := <-down:
		t.Fatalf("shut down with requests in flight: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(g.open)
	p.expect(t, "a "+hitText(8), "b 01")
	require.NoError(t, <-down)
	p.closedWithin(t)
	require.NoError(t, server.Err())
}

func TestRemoteDrainDeadline(t *testing.T) {
	keys := chain("a", 8, 32)
	store, g := filled(t, keys), newGate() // never opened
	store.holding(g, "exists", "")
	cfg := patient
	cfg.BreakerFailures = 1
	server := startRemote(t, store, cfg, Limits{})
	p := dialPeer(t, server)
	p.send(t, lookupOf("a", keys))
	eventually(t, "it is asked", func() bool { return g.held.Load() == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, server.Shutdown(ctx), "1 connections cut off")
	<-server.Done()
	require.Zero(t, server.service.remote.bytes.Load())
	require.Equal(t, "closed", server.service.Stat().BackendState, "what we cut off is not the backend's failure")
}

// TestDrainWaitsForUnsentReplies has a peer that reads late.
func TestDrainWaitsForUnsentReplies(t *testing.T) {
	for name, cfg := range map[string]ServiceConfig{"memory": blocks16, "remote": {Pool: blocks16.Pool, Backend: &keyStore{}}} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, cfg, Limits{MaxUnsent: 256 << 20})
			p := dialPeer(t, server)
			const pings = 400 // 25 MiB, more than the kernel takes
			ping := plainOf("", netproto.TagPing, make([]byte, 64000))
			p.send(t, bytes.Repeat(ping, pings))
			eventually(t, "replies are unsent", func() bool { return server.busy() == 1 })
			down := make(chan error, 1)
			go func() { down <- server.Shutdown(context.Background()) }()
			eventually(t, "draining", server.shuttingDown.Load)
			for range pings {
				require.Len(t, p.next(t)[1], 64000)
			}
			require.NoError(t, <-down)
		})
	}
}

func TestRemoteIdleTimeout(t *testing.T) {
	server := startRemote(t, &keyStore{}, patient, Limits{IdleTimeout: time.Second})
	ses := newSession(server, new(replies))
	ses.inFlight.Store(1)
	require.Equal(t, closedByPeer, server.overdue(ses, monotonicAt(time.Now().Add(time.Hour))))
	ses.inFlight.Store(0)
	require.Equal(t, closedIdleTimeout, server.overdue(ses, monotonicAt(time.Now().Add(time.Hour))))
}

// TestRemoteExplain compares explanations of random pools' contents with those of
// the memory index.
func TestRemoteExplain(t *testing.T) {
	pool := coordinator.Pool{
		HashBlockSize: 16, TPSize: 2,
		Groups: []coordinator.Group{
			{Kind: coordinator.FullAttention, BlockSize: 64},
			{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32},
		},
	}
	raw := chain("a", 32, 32)
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		memory, err := NewService(ServiceConfig{Pool: pool})
		require.NoError(t, err)
		remote, err := NewService(ServiceConfig{Pool: pool, Backend: &keyStore{}, Remote: patient})
		require.NoError(t, err)
		for i := range 32 {
			for place := range 4 {
				if rng.IntN(10) == 0 {
					continue
				}
				at := Place{Group: uint16(place / 2), TPRank: uint16(place % 2)}
				require.NoError(t, memory.Store(at, raw[32*i:32*i+32], 32))
				require.NoError(t, remote.Store(at, raw[32*i:32*i+32], 32))
			}
		}
		tokens, hashes := uint64(64*rng.IntN(9)), netproto.NewHashes(raw[:32*(1+rng.IntN(32))], 32)
		want, wantErr := memory.Explain(tokens, hashes)
		got, gotErr := remote.Explain(tokens, hashes)
		require.Equal(t, classOf(wantErr), classOf(gotErr))
		require.Equal(t, want, got, "seed %d", seed)
	}
}

func TestRemoteExplainOverTheWire(t *testing.T) {
	keys := chain("a", 8, 32)
	server := startRemote(t, filled(t, keys[:160]), patient, Limits{})
	e, err := dialTest(t, server).Explain(context.Background(), 128, keys, 32)
	require.NoError(t, err)
	require.EqualValues(t, 80, e.HitTokens)
	require.EqualValues(t, 5, *e.Groups[0].FirstMissingBlock)
	p := dialPeer(t, server)
	p.send(t, netproto.AppendExplain(nil, nil, 128, 32, 0))
	_, body, text := p.reply(t)
	require.Equal(t, "01", body)
	require.NoError(t, json.Unmarshal([]byte(text), &e))
	require.Equal(t, coordinator.ReasonNothing, e.Groups[0].Reason)
}

// TestRemoteManyKeys bounds the keys that requests make: they take much more memory
// than the hashes that they are made of.
func TestRemoteManyKeys(t *testing.T) {
	pool := coordinator.Pool{ModelName: "m", TPSize: 2}
	keys := chain("a", 2000, 2) // 2,000 hashes on two ranks, 112 bytes a key: 448,000
	all, half := netproto.NewHashes(keys, 2), netproto.NewHashes(keys[:2000], 2)
	for _, strategy := range []Strategy{Gallop, AskAll} {
		synctest.Test(t, func(t *testing.T) {
			store, open := &keyStore{}, make(chan struct{})
			store.answer = func(answers []int) []int {
				for i := range answers {
					answers[i] = 1
				}
				return answers
			}
			store.before = func(ctx context.Context, _ string, _ []string) error {
				select {
				case <-open:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			s, err := NewService(ServiceConfig{Pool: pool, Backend: store, Remote: RemoteConfig{Strategy: strategy, MaxKeyBytes: 640_000, Workers: 1}})
			require.NoError(t, err)
			lookup := func(hashes netproto.Hashes, want uint32) {
				hit, err := s.Lookup(uint64(16*hashes.Len()), hashes)
				require.NoError(t, err)
				require.Equal(t, want, hit)
			}
			whole := func() {
				require.True(t, s.remote.keys.small.TryAcquire(160_000), "it is given back")
				s.remote.keys.small.Release(160_000)
				require.True(t, s.remote.keys.large.TryAcquire(480_000), "it is given back")
				s.remote.keys.large.Release(480_000)
				require.Empty(t, s.remote.cpu)
			}

			_, err = s.Explain(32000, all)
			require.ErrorIs(t, err, ErrTooManyKeys)
			require.EqualValues(t, 1, s.Stat().BackendRejected)
			if strategy == AskAll {
				lookup(all, 0)
				require.EqualValues(t, 2, s.Stat().BackendRejected)
			}
			require.Zero(t, store.calls.Load(), "no key was built")
			whole()

			var asks sync.WaitGroup // two have room at a time, the others when these are done
			for range 5 {
				asks.Go(func() {
					e, err := s.Explain(16000, half)
					require.NoError(t, err)
					require.EqualValues(t, 16000, e.HitTokens)
				})
			}
			synctest.Wait()
			require.EqualValues(t, 2, store.calls.Load())
			require.Empty(t, s.remote.cpu, "who waits for room does not keep others from a processor")
			close(open)
			asks.Wait()
			lookup(half, 16000)
			whole()

			open = make(chan struct{}) // now all wait until it is too late
			for range 5 {
				asks.Go(func() {
					_, err := s.Explain(16000, half)
					require.ErrorIs(t, err, context.DeadlineExceeded)
				})
			}
			asks.Wait()
			require.EqualValues(t, 5, s.Stat().BackendTimeouts)
			whole()
		})
	}
}

// TestRemoteChangesInPieces stores and evicts more keys than one call of a backend
// takes.
func TestRemoteChangesInPieces(t *testing.T) {
	const n = 2*writeAtOnce + 5
	keys := chain("a", n, 8)
	most, fail := 0, int64(0)
	store := &keyStore{}
	store.before = func(_ context.Context, op string, keys []string) error {
		if most = max(most, len(keys)); store.calls.Load() == fail {
			return errStore
		}
		return nil
	}
	s, err := NewService(ServiceConfig{Pool: coordinator.Pool{ModelName: "m"}, Backend: store, Remote: patient})
	require.NoError(t, err)
	require.NoError(t, s.Store(Place{}, keys, 8))
	require.Equal(t, writeAtOnce, most)
	require.EqualValues(t, 3, store.calls.Load())
	require.Len(t, store.keys, n)
	require.EqualValues(t, n, s.Stat().Stored)
	hit, err := s.Lookup(1600, netproto.NewHashes(keys[len(keys)-800:], 8))
	require.NoError(t, err)
	require.EqualValues(t, 1600, hit)
	calls := store.calls.Load()
	require.NoError(t, s.Evict(Place{}, keys, 8))
	require.Empty(t, store.keys)
	require.EqualValues(t, calls+3, store.calls.Load())

	fail = calls + 5
	require.ErrorIs(t, s.Store(Place{}, keys, 8), errStore)
	require.EqualValues(t, fail, store.calls.Load(), "none behind the one that failed")
	require.Len(t, store.keys, writeAtOnce)
}

// TestRemoteNeedsFewHashes asks for few tokens with many hashes: only those that
// matter are copied and asked.
func TestRemoteNeedsFewHashes(t *testing.T) {
	keys := chain("a", 10000, 32)
	store := filled(t, keys[:320])
	asked := atomic.Int64{}
	store.before = func(_ context.Context, _ string, keys []string) error { asked.Add(int64(len(keys))); return nil }
	server := startRemote(t, store, patient, Limits{})
	p := dialPeer(t, server)
	p.send(t, append(netproto.AppendLookup(nil, nil, 160, 32, len(keys)), keys...))
	p.expect(t, hitText(10))
	require.EqualValues(t, 10, asked.Load())
	require.EqualValues(t, 320, server.copied.Load())
}

func BenchmarkRemoteRoundTrip(b *testing.B) {
	for _, n := range []int{64, 512, 8192} {
		b.Run(fmt.Sprintf("hashes=%d", n), func(b *testing.B) {
			keys := chain("a", n, 32)
			server := startRemote(b, filled(b, keys), patient, Limits{})
			c := dialTest(b, server)
			b.ReportAllocs()
			for b.Loop() {
				if hit, err := c.Lookup(context.Background(), uint32(16*n), keys, 32); err != nil || hit != uint32(16*n) {
					b.Fatal(hit, err)
				}
			}
		})
	}
}
