package router

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/router/fleet"
)

// eventually waits until ok.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 30*time.Second, 2*time.Millisecond)
}

// engineSource returns the source of an engine of llama.
func engineSource(p *eventstest.Publisher, engine string, rank int) Source {
	return Source{
		Name: fmt.Sprintf("%s/%d", engine, rank), Endpoint: p.Endpoint, Replay: p.Replay, Model: llama.Name, Engine: engine, Rank: rank,
		BlockSize: 16,
	}
}

// hashOf returns the hash of a block with a number, and its event's form.
func hashOf(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func hashesOf(numbers ...uint64) coordinator.Hashes {
	var b []byte
	for _, n := range numbers {
		b = append(b, hashOf(n)...)
	}
	return coordinator.NewHashes(b, 8)
}

func stored(numbers ...uint64) map[string]any {
	var hashes [][]byte
	for _, n := range numbers {
		hashes = append(hashes, hashOf(n))
	}
	return eventstest.Stored(hashOf(1<<40), hashes...)
}

func removed(n uint64) map[string]any { return eventstest.Removed(hashOf(n)) }

// status returns that of a source.
func status(t testing.TB, s *Service, name string) SourceStatus {
	t.Helper()
	for _, st := range s.Status() {
		if st.Name == name {
			return st
		}
	}
	require.Failf(t, "no source", "%q", name)
	return SourceStatus{}
}

// awaitNext waits until a source is live and has applied all batches before next.
func awaitNext(t testing.TB, s *Service, name string, next uint64) {
	t.Helper()
	eventually(t, func() bool { st := status(t, s, name); return !st.Stale && st.NextSeq == next })
}

// dumpOf returns the dump of a service.
func dumpOf(t testing.TB, s *Service) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, s.WriteDump(t.Context(), &b))
	return b.Bytes()
}

// engines are two engines that are followed, and what a service answers about them.
type engines struct {
	t    *testing.T
	a, b *eventstest.Publisher
}

func newEngines(t *testing.T) *engines {
	e := &engines{t, eventstest.New(t), eventstest.New(t)}
	e.a.Publish(true, stored(1, 2, 3))
	e.a.Publish(true, stored(1, 2), stored(4)) // copies of 1 and 2
	e.b.Publish(true, stored(1), stored(2))
	e.b.Publish(true, removed(2))
	return e
}

const ofEngines = "a/0=64(GPU=64) b/1=16(GPU=16) "

func (e *engines) sources() []Source {
	return []Source{engineSource(e.a, "a", 0), engineSource(e.b, "b", 1)}
}

// service returns a service that follows the engines and has caught up. Engine b is registered.
func (e *engines) service() *Service {
	s := newService(e.t, Config{Allow: []string{"tcp://127.0.0.1:*"}})
	require.NoError(e.t, s.Add(e.sources()[0]))
	require.NoError(e.t, s.Register(e.sources()[1]))
	awaitNext(e.t, s, "a/0", 2)
	awaitNext(e.t, s, "b/1", 2)
	require.Equal(e.t, ofEngines, askAll(e.t, s))
	return s
}

// askAll asks who has which of the first blocks, predictions included.
func askAll(t *testing.T, s *Service) string {
	return ask(t, s, Query{ModelKey: llama, Hashes: hashesOf(1, 2, 3, 4, 5)})
}

// A second service holds what the first does, has read only what was published since, and goes on like it. Copies are
// counted as there.
func TestReplica(t *testing.T) {
	e := newEngines(t)
	one := e.service()
	require.NoError(t, one.Predict(t.Context(), llama, fleet.ID{Engine: "a"}, &Query{Hashes: hashesOf(1, 2, 3, 4, 5)}))
	two := newService(t, Config{Allow: []string{"tcp://127.0.0.1:*"}})
	require.NoError(t, two.LoadDump(bytes.NewReader(dumpOf(t, one))))
	require.Empty(t, askAll(t, two), "stale until the sources go on")
	e.a.Publish(true, removed(1), removed(4)) // meanwhile
	require.NoError(t, two.Add(e.sources()[0]))
	require.NoError(t, two.Register(e.sources()[1]))
	two.DropUnclaimed()
	awaitNext(t, two, "a/0", 3)
	awaitNext(t, two, "b/1", 2)
	require.Equal(t, "a/0=48(GPU=48) b/1=16(GPU=16) ", askAll(t, two), "predictions are left out, a copy is left")
	e.a.Publish(false, removed(1))
	awaitNext(t, two, "a/0", 4)
	require.Equal(t, "b/1=16(GPU=16) ", askAll(t, two))
	for name, batches := range map[string]int64{"a/0": 2, "b/1": 0} {
		st := status(t, two, name)
		require.Equal(t, batches, st.Batches, name)
		require.True(t, st.Complete, name)
		require.Zero(t, st.Lost+st.Restarts+st.Errors, name)
	}
	require.True(t, status(t, two, "b/1").Registered)

	// The replica of a replica.
	three := newService(t, Config{})
	require.NoError(t, three.LoadDump(bytes.NewReader(dumpOf(t, two))))
	require.NoError(t, three.Add(e.sources()[1]))
	three.DropUnclaimed()
	awaitNext(t, three, "b/1", 2)
	require.Equal(t, "b/1=16(GPU=16) ", askAll(t, three))
	require.Len(t, three.Models()[0].Holders, 1, "a holder of no source is dropped")

	// A source whose copies are counted in another way begins anew.
	four := newService(t, Config{})
	require.NoError(t, four.LoadDump(bytes.NewReader(dumpOf(t, one))))
	exact := e.sources()[0]
	exact.ExactCopies = true
	require.NoError(t, four.Add(exact))
	awaitNext(t, four, "a/0", 4)
	require.EqualValues(t, 4, status(t, four, "a/0").Batches)
}

// While engines publish, each dump is of one moment: it has exactly the block of the batch in front of its checkpoint,
// and goes on without a copy too many.
func TestReplicaOfOneMoment(t *testing.T) {
	const engines, dumps = 3, 40
	var list []*eventstest.Publisher
	one := newService(t, Config{})
	for i := range engines {
		p := eventstest.New(t)
		list = append(list, p)
		p.Publish(true, stored(0))
		require.NoError(t, one.Add(engineSource(p, "engine", i)))
	}
	// Each batch takes a while to be applied, and some wait.
	var many []uint64
	for n := range uint64(300) {
		many = append(many, 1<<30+n)
	}
	gone := eventstest.Removed(slices.Collect(slices.Chunk(hashesOf(many...).Bytes(), 8))...)
	var stop atomic.Bool
	applied := func(rank int) uint64 { return status(t, one, fmt.Sprint("engine/", rank)).NextSeq }
	progress := func() uint64 { return applied(0) + applied(1) + applied(2) }
	var publishing sync.WaitGroup
	published := make([]uint64, engines)
	for i, p := range list {
		publishing.Go(func() {
			n := uint64(1)
			for ; !stop.Load(); n++ {
				p.Publish(n%40 == 0, removed(n-1), stored(many...), gone, stored(many...), gone, stored(n))
				for n > applied(i)+16 && !stop.Load() { // not much faster than they are applied
					time.Sleep(time.Millisecond)
				}
			}
			published[i] = n
		})
	}
	eventually(t, func() bool { return applied(0)*applied(1)*applied(2) > 0 })
	var last *Service
	for range dumps {
		now := progress()
		eventually(t, func() bool { return progress() > now })
		last = newService(t, Config{})
		require.NoError(t, last.LoadDump(bytes.NewReader(dumpOf(t, one))))
		f, err := last.Fleet(llama)
		require.NoError(t, err)
		for _, h := range f.Holders() {
			require.Equal(t, 1, h.Blocks)
			f.Get(h.ID).SetStale(false)
			next := last.unclaimed[holderKey{llama.withDefaults(), h.ID}].checkpoint.NextSeq
			require.Equal(t, fmt.Sprintf("engine/%d=16(GPU=16) ", h.Rank), ask(t, last, Query{ModelKey: llama, Hashes: hashesOf(next - 1)}))
			f.Get(h.ID).SetStale(true)
		}
	}
	for i, p := range list {
		require.NoError(t, last.Add(engineSource(p, "engine", i)))
	}
	stop.Store(true)
	publishing.Wait()
	for i := range engines {
		name := fmt.Sprint("engine/", i)
		awaitNext(t, last, name, published[i])
		st := status(t, last, name)
		require.EqualValues(t, 1, st.Blocks, name)
		require.Zero(t, st.Lost+st.Restarts, name)
		require.True(t, st.Complete, name)
	}
}

// While a batch in progress is waited for, the other sources are paused. If it takes too long, its source is in the dump without
// its place, and the replica follows it from its beginning.
func TestDumpOfBusySource(t *testing.T) {
	e := newEngines(t)
	s := e.service()
	var log logtest.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a, busy := s.active["a/0"].follower, s.active["b/1"].follower
	_, err := busy.Pause(t.Context())
	require.NoError(t, err)
	var dump bytes.Buffer
	done := make(chan error)
	go func() { done <- s.WriteDump(t.Context(), &dump) }()
	eventually(t, func() bool {
		_, err := a.Pause(ended)
		if err == nil {
			a.Unpause()
		}
		return err != nil
	})
	e.a.Publish(false, stored(5))
	err = <-done
	busy.Unpause()
	require.NoError(t, err)
	require.Contains(t, log.String(), "from their beginning\" number=1 first=b/1")
	awaitNext(t, s, "a/0", 3)
	two := newService(t, Config{Allow: []string{"tcp://127.0.0.1:*"}})
	peer := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(dump.Bytes()) }))
	require.NoError(t, two.Start(t.Context(), StartConfig{Sources: e.sources()[:1], Peers: []string{peer}}))
	eventually(t, func() bool { return two.Ready() == nil })
	awaitNext(t, two, "a/0", 3)
	awaitNext(t, two, "b/1", 2)
	require.EqualValues(t, 1, status(t, two, "a/0").Batches)
	require.EqualValues(t, 2, status(t, two, "b/1").Batches)
	require.True(t, status(t, two, "b/1").Registered)
	require.Equal(t, "a/0=80(GPU=80) b/1=16(GPU=16) ", askAll(t, two))
}

// unsure returns the holders that an answer names, with the reasons.
func unsure(t testing.TB, s *Service) (text string) {
	var a Answer
	require.NoError(t, s.Query(t.Context(), &Query{ModelKey: llama, Hashes: hashesOf(1)}, &a))
	for _, u := range a.Unsure {
		text += fmt.Sprintf("%s/%d=%s ", u.Engine, u.Rank, strings.Join(u.Reasons(nil), ","))
	}
	return text
}

// Each source of a dump that is not followed is unsure, until it is registered or unregistered, or its address is another's.
// The log says so once.
func TestSourceOfDumpIsNotFollowed(t *testing.T) {
	e := newEngines(t)
	one := e.service()
	moved := func(engine string) Source {
		return Source{Endpoint: deadEndpoint(), Replay: deadEndpoint(), Model: llama.Name, Engine: engine, BlockSize: 16}
	}
	c, d := moved("c"), moved("d")
	require.NoError(t, one.Register(c))
	require.NoError(t, one.Register(d))
	var log logtest.Buffer
	two := newService(t, Config{ // it allows neither c nor d, and has another source of the name b/1
		Allow: []string{"tcp://127.0.0.1:1-60999"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	namesake := source(t, llama, "x", 0, 16)
	namesake.Name = "b/1"
	require.NoError(t, two.Start(t.Context(), StartConfig{Sources: []Source{namesake}, Peers: []string{serve(t, serveDumps(one))}}))
	require.Equal(t, "a/0=stale b/1=stale c/0=stale d/0=stale x/0=stale,incomplete ", unsure(t, two))
	for engine, reason := range map[string]string{
		"a rank=0": "it is one of the peer's configuration, and not of this one", "b rank=1": `name \"b/1\" has a source already`,
		"c rank=0": "not an endpoint that register allows", "d rank=0": "not an endpoint that register allows",
	} {
		require.Regexp(t, "a source of the dump is not followed.* engine="+engine+" reason=.*"+regexp.QuoteMeta(reason), log.String())
	}
	require.Equal(t, 4, strings.Count(log.String(), "a source of the dump is not followed"))
	require.Empty(t, two.Models()[0].Holders[1:], "their holders are dropped")

	// The replica of a replica knows of those that were registered.
	three := newService(t, Config{Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}})
	require.NoError(t, three.LoadDump(bytes.NewReader(dumpOf(t, two))))
	three.DropUnclaimed()
	require.Equal(t, "b/1=stale c/0=stale d/0=stale x/0=stale ", unsure(t, three))

	b := e.sources()[1]
	b.Name = "b"
	require.NoError(t, two.Register(b))
	awaitNext(t, two, "b", 2)
	require.Equal(t, "a/0=stale c/0=stale d/0=stale x/0=stale,incomplete ", unsure(t, two))
	require.Equal(t, []int{0}, two.RegisteredRanks(llama, "c"))
	require.NoError(t, two.Unregister(llama, fleet.ID{Engine: "c"}))
	require.ErrorIs(t, two.Unregister(llama, fleet.ID{Engine: "c"}), ErrNoSource)
	require.NoError(t, two.Unregister(llama, fleet.ID{Engine: "a"}))
	require.Equal(t, "d/0=stale x/0=stale,incomplete ", unsure(t, two))
	reused := moved("new")
	reused.Endpoint = d.Endpoint
	two.allow, _ = newAllowList([]string{"tcp://127.0.0.1:*"})
	require.NoError(t, two.Register(reused))
	require.Equal(t, "new/0=stale,incomplete x/0=stale,incomplete ", unsure(t, two))
}

// An engine that has moved registers while a dump with its old address is loaded: that is refused until the sources of the dump
// are followed, so the registration is newer.
func TestRegistrationBeatsDump(t *testing.T) {
	one := newService(t, Config{Allow: []string{"tcp://127.0.0.1:*"}})
	for i := range 100 { // following them takes a while
		require.NoError(t, one.Register(source(t, llama, fmt.Sprintf("engine-%02d", i), 0, 16)))
	}
	peer := serve(t, serveDumps(one))
	for range 5 {
		two := newService(t, Config{Allow: []string{"tcp://127.0.0.1:*"}})
		src := source(t, llama, "engine-99", 0, 16)
		src.Name = "moved"
		registered := make(chan error)
		var started atomic.Bool
		go func() {
			for two.Ready() == nil && !started.Load() { // until Start has begun
				runtime.Gosched()
			}
			err := ErrLoading
			for errors.Is(err, ErrLoading) {
				err = two.Register(src)
			}
			registered <- err
		}()
		err := two.Start(t.Context(), StartConfig{Peers: []string{peer}})
		started.Store(true)
		require.NoError(t, cmp.Or(err, <-registered))
		require.Len(t, two.Status(), 100)
		require.Equal(t, src.Endpoint, status(t, two, "moved").Endpoint)
	}
	three := newService(t, Config{Allow: []string{"tcp://127.0.0.1:*"}})
	three.loading.Store(true)
	require.ErrorIs(t, three.follow(source(t, llama, "late", 0, 16), true, false), ErrLoading, "Start began after it was called")
	require.ErrorIs(t, three.Unregister(llama, fleet.ID{Engine: "engine-99"}), ErrLoading)
}

// A slow reader of a dump holds nothing up but other dumps.
func TestSlowDump(t *testing.T) {
	e := newEngines(t)
	s := e.service()
	r, w := io.Pipe()
	done := make(chan error)
	go func() { done <- s.WriteDump(t.Context(), w) }()
	_, err := r.Read(make([]byte, 1))
	require.NoError(t, err)
	second := make(chan error)
	go func() { second <- s.WriteDump(t.Context(), io.Discard) }()
	e.a.Publish(false, stored(5))
	awaitNext(t, s, "a/0", 3)
	require.NoError(t, r.CloseWithError(io.ErrClosedPipe))
	require.ErrorIs(t, <-done, io.ErrClosedPipe)
	require.NoError(t, <-second)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.WriteDump(ended, io.Discard), context.Canceled)
	require.NotEmpty(t, dumpOf(t, s))
}

// serveDumps answers with dumps of a service, as package httpapi does.
func serveDumps(s *Service) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.WriteDump(r.Context(), w); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
}

// serve serves a handler on loopback and returns its address.
func serve(t *testing.T, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// A service starts from the first peer that has a dump. What is wrong with the others does not matter.
func TestStartFromPeers(t *testing.T) {
	e := newEngines(t)
	one := e.service()
	dump := dumpOf(t, one)
	var asked atomic.Int64
	handler := serveDumps(one)
	refusing := serve(t, http.NotFoundHandler())
	elsewhere := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	redirecting := serve(t, http.RedirectHandler(elsewhere, http.StatusFound))
	cut := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(dump[:len(dump)-1]) }))
	loading := newService(t, Config{})
	loading.loading.Store(true)
	good := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/dump", r.URL.Path)
		require.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		asked.Add(1)
		handler.ServeHTTP(w, r)
	}))
	dead := "http" + deadEndpoint()[len("tcp"):]
	two := newService(t, Config{Allow: []string{"tcp://127.0.0.1:*"}})
	require.NoError(t, two.Start(t.Context(), StartConfig{
		Sources: e.sources()[:1], Token: "secret",
		Peers: []string{dead, refusing, redirecting, cut, serve(t, serveDumps(loading)), good},
	}))
	eventually(t, func() bool { return two.Ready() == nil })
	require.Equal(t, ofEngines, askAll(t, two))
	require.EqualValues(t, 1, asked.Load())
	require.Zero(t, status(t, two, "a/0").Batches)
	require.True(t, status(t, two, "b/1").Registered)

	// What the peer's configuration has is not followed unless this one has it, too.
	three := newService(t, Config{Allow: []string{"tcp://127.0.0.1:*"}})
	require.NoError(t, three.Start(t.Context(), StartConfig{Token: "secret", Peers: []string{good}}))
	require.Len(t, three.Status(), 1)
	require.Equal(t, "b/1", three.Status()[0].Name)
}

// Without any peer that answers, a service starts as ever: a peer that hangs is not waited for longer than PeerTimeout.
// Until then the service neither takes registrations nor gives dumps; a Start that is given up ends.
func TestStartWithoutPeers(t *testing.T) {
	e := newEngines(t)
	dump := dumpOf(t, e.service())
	hangs := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(dump[:len(dump)/2])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	two := newService(t, Config{})
	require.NoError(t, two.Start(t.Context(), StartConfig{Sources: e.sources(), Peers: []string{hangs}, PeerTimeout: 100 * time.Millisecond}))
	require.NoError(t, two.Ready())
	awaitNext(t, two, "a/0", 2)
	awaitNext(t, two, "b/1", 2)
	require.Equal(t, ofEngines, askAll(t, two))

	three := newService(t, Config{Allow: []string{"tcp://127.0.0.1:*"}})
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- three.Start(ctx, StartConfig{Peers: []string{hangs}}) }()
	eventually(t, func() bool { return three.Ready() != nil })
	require.ErrorIs(t, three.Ready(), ErrLoading)
	require.ErrorIs(t, three.Register(e.sources()[0]), ErrLoading)
	require.ErrorIs(t, three.WriteDump(t.Context(), io.Discard), ErrLoading)
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)
}

// Sources that cannot be followed here are dropped; errors of the configuration are told.
func TestStartErrors(t *testing.T) {
	e := newEngines(t)
	good := serve(t, serveDumps(e.service()))
	two := newService(t, Config{}) // it allows no endpoint
	bad := e.sources()[0]
	bad.Endpoint = ""
	err := two.Start(t.Context(), StartConfig{Sources: []Source{bad, e.sources()[0]}, Peers: []string{good}})
	require.ErrorIs(t, err, ErrField)
	require.ErrorContains(t, err, `source "a/0"`)
	require.Len(t, two.Models()[0].Holders, 1)
	require.Len(t, two.Status(), 1)
	require.ErrorIs(t, two.Start(t.Context(), StartConfig{Peers: []string{"no peer, and it is not asked"}}), ErrNotEmpty)

	for _, peer := range []string{"", "127.0.0.1:80", "ftp://127.0.0.1", "http://", "http://user:secret@host", "http://host?x=y", "http://host/dump"} {
		err := newService(t, Config{}).Start(t.Context(), StartConfig{Peers: []string{peer}})
		require.ErrorIs(t, err, api.ErrConfig, peer)
		require.NotContains(t, err.Error(), "secret")
	}
	require.NoError(t, CheckPeer("https://hitline-0.hitline:8557/"))
}

// A source of a dump whose engine went away since is waited for until PeerTimeout. One that was stale at the peer is not,
// as an engine that went without a word would delay each start; unless the peer waits for it itself.
func TestReadyWaits(t *testing.T) {
	e := newEngines(t)
	one := e.service()
	live := dumpOf(t, one)
	e.b.Close()
	eventually(t, func() bool { return status(t, one, "b/1").Stale })
	stale := dumpOf(t, one)
	one.mu.Lock()
	one.active["b/1"].catchesUp = true
	one.mu.Unlock()
	for i, dump := range [][]byte{live, stale, dumpOf(t, one)} {
		peer := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(dump) }))
		two := newService(t, Config{Allow: []string{"tcp://127.0.0.1:*"}})
		require.NoError(t, two.Start(t.Context(), StartConfig{Sources: e.sources()[:1], Peers: []string{peer}, PeerTimeout: time.Hour}))
		require.Len(t, two.Status(), 2)
		eventually(t, func() bool { return !status(t, two, "a/0").Stale })
		require.Equal(t, "a/0=64(GPU=64) ", askAll(t, two))
		if i == 1 {
			require.NoError(t, two.Ready())
			continue
		}
		require.ErrorIs(t, two.Ready(), ErrCatchingUp)
		require.ErrorContains(t, two.Ready(), "1 of 2")
		two.mu.Lock()
		two.catchUpUntil = time.Now()
		two.mu.Unlock()
		require.NoError(t, two.Ready())
	}
}
