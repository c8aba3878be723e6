package router

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// Every field is checked, and the error names it.
func TestSourceValidate(t *testing.T) {
	good := Source{Endpoint: "tcp://a:1", Model: "m", Engine: "e"}
	require.NoError(t, good.Validate())
	for field, spoil := range map[string]func(*Source){
		"endpoint":        func(s *Source) { s.Endpoint = "" },
		"replay_endpoint": func(s *Source) { s.Replay = "tcp://*:1" },
		"kv_endpoint":     func(s *Source) { s.KVEndpoint = "tcp://a" },
		"name":            func(s *Source) { s.Name = "a\nb" },
		"topic":           func(s *Source) { s.Topic = "\x00\x1b" },
		"type":            func(s *Source) { s.Type = "trt" },
		"model":           func(s *Source) { s.Model = "" },
		"tenant_id":       func(s *Source) { s.Tenant = "\x00" },
		"instance_id":     func(s *Source) { s.Engine = "a\u202eb" },
		"dp_rank":         func(s *Source) { s.Rank = fleet.MaxRank + 1 },
		"block_size":      func(s *Source) { s.BlockSize = -1 },
		"timeout":         func(s *Source) { s.Timeout = 1 },
		"ranks":           func(s *Source) { s.Rank, s.Ranks = fleet.MaxRank, 2 },
		"name of a rank":  func(s *Source) { s.Name, s.Ranks = strings.Repeat("a", events.MaxName-1), 2 },
	} {
		src := good
		spoil(&src)
		var e *fielderror.Error
		if assert.ErrorAs(t, src.Validate(), &e, field) {
			assert.Equal(t, strings.Fields(field)[:1], e.Fields)
		}
	}
}

func TestAllowList(t *testing.T) {
	list, err := newAllowList([]string{
		"tcp://10.0.0.0/8:5557-5564", "tcp://[fd00::/8]:*", "tcp://Engine-0:5557", "tcp://192.168.1.2:1", "tcp://[::1]:7", "ipc:///run/engine.sock",
		"tcp://[::ffff:10.9.0.0/112]:9", "tcp://[::ffff:172.16.0.1]:9",
	})
	require.NoError(t, err)
	for endpoint, want := range map[string]bool{
		"tcp://10.1.2.3:5557":          true,
		"tcp://10.1.2.3:5564":          true,
		"tcp://[::ffff:10.1.2.3]:5557": true,
		"tcp://10.1.2.3:5556":          false,
		"tcp://10.1.2.3:5565":          false,
		"tcp://11.1.2.3:5557":          false,
		"tcp://[fd12::1]:65535":        true,
		"tcp://[fe80::1]:5557":         false,
		"tcp://[fd12::1%eth0]:5557":    false,
		"tcp://engine-0:5557":          true,
		"tcp://ENGINE-0:5557":          true,
		"tcp://engine-0:5558":          false,
		"tcp://engine-0.evil.com:5557": false,
		"tcp://localhost:5557":         false,
		"tcp://192.168.1.2:1":          true,
		"tcp://192.168.1.3:1":          false,
		"tcp://[::1]:7":                true,
		"tcp://[::1]:8":                false,
		"tcp://10.9.1.2:9":             true,
		"tcp://[::ffff:10.9.1.2]:9":    true,
		"tcp://10.8.1.2:9":             false,
		"tcp://172.16.0.1:9":           true,
		"tcp://172.16.0.2:9":           false,
		"tcp://10.1.2.3":               false,
		"ipc:///run/engine.sock":       true,
		"ipc:///run/engine.sock2":      false,
		"ipc://@engine":                false,
		"http://10.1.2.3:5557":         false,
		"tcp://0xa.1.2.3:5557":         false,
		"tcp://167838211:5557":         false,
	} {
		require.Equal(t, want, list.allows(endpoint), endpoint)
	}
	for _, entry := range []string{"", "10.0.0.0/8:1", "tcp://10.0.0.0/8", "tcp://10.0.0.0/33:1", "tcp://*:1", "tcp://:1", "tcp://a:0",
		"tcp://a:2-1", "tcp://a:1-65536", "tcp://a:x", "tcp://[fe80::1%eth0]:1", "tcp://[::ffff:0:0/95]:1", "ipc://", "http://a:1"} {
		_, err := New(Config{Allow: []string{"tcp://a:1", entry}})
		require.ErrorIs(t, err, fielderror.ErrConfig, entry)
		require.ErrorContains(t, err, "register[1]")
	}
}

// A name and a holder are free again after whatever went wrong.
func TestSourceThatCannotStart(t *testing.T) {
	s := newService(t, Config{MaxSources: 2, Allow: []string{"tcp://127.0.0.1:*"}})
	require.Equal(t, 1024, newService(t, Config{}).cfg.MaxSources, "the default")
	first := source(t, llama, "a", 0, 16)
	first.Bind = true
	require.ErrorIs(t, s.Register(first), ErrNotAllowed, "a client binds nothing")
	first.Endpoint = "tcp://192.0.2.1:1"
	require.Error(t, s.Add(first))
	require.Empty(t, s.Models())
	first.Endpoint, first.Bind = deadEndpoint(), false
	require.NoError(t, s.Register(first))
	evil := source(t, llama, "b", 0, 0)
	evil.Replay = "tcp://127.0.0.2:1"
	require.ErrorIs(t, s.Register(evil), ErrNotAllowed)
	require.NoError(t, s.Register(source(t, llama, "b", 0, 0)))
	require.ErrorIs(t, s.Register(source(t, llama, "c", 0, 0)), ErrTooMany)
	require.NoError(t, s.Add(source(t, llama, "c", 0, 0)), "the bound is one of sources that are registered")
	require.NoError(t, s.Unregister(llama, fleet.ID{Engine: "b"}))
	require.NoError(t, s.Register(source(t, llama, "d", 0, 0)))
}

// The same registration again changes nothing, also of a source of the configuration. An engine at a new address replaces
// itself.
func TestRegisterAgain(t *testing.T) {
	s := newService(t, Config{Allow: []string{"tcp://127.0.0.1:*"}, MaxSources: 1})
	old, moved := eventstest.New(t), eventstest.New(t)
	old.Publish(false, stored(1, 2, 3))
	moved.Publish(false, stored(1))
	require.NoError(t, s.Register(engineSource(old, "a", 0)))
	awaitNext(t, s, "a/0", 1)
	require.NoError(t, s.Register(engineSource(old, "a", 0)))
	require.EqualValues(t, 1, status(t, s, "a/0").NextSeq, "it is followed on")
	require.Equal(t, "a/0=48(GPU=48) ", ask(t, s, Query{Hashes: hashesOf(1, 2, 3)}))

	again := engineSource(moved, "a", 0)
	again.BlockSize = 0 // the model stays
	require.NoError(t, s.Register(again))
	awaitNext(t, s, "a/0", 1)
	require.Equal(t, "a/0=16(GPU=16) ", ask(t, s, Query{Hashes: hashesOf(1, 2, 3)}))
	require.Len(t, s.Status(), 1)
	require.False(t, old.HasSubscriber())

	// What is left out is what the model has, and a type may be in any case.
	follower := s.active["a/0"].follower
	for _, same := range []func(*Source){
		func(src *Source) { src.BlockSize = 16 }, func(src *Source) { src.Type = "VLLM" }, func(src *Source) { src.Tenant = DefaultTenant },
		func(src *Source) { src.Timeout = Duration(events.DefaultTimeout) }, func(src *Source) { src.Ranks = 1 },
	} {
		src := again
		same(&src)
		require.True(t, s.Follows(src))
		require.NoError(t, s.Register(src))
		require.Same(t, follower, s.active["a/0"].follower)
	}
	other := again
	other.ExactCopies = true
	require.False(t, s.Follows(other))
	other = again
	other.Engine = "b"
	require.False(t, s.Follows(other))

	fixed := source(t, llama, "fixed", 0, 0)
	require.NoError(t, s.Add(fixed))
	require.NoError(t, s.Register(fixed))
	require.False(t, status(t, s, "llama/fixed/0").Registered)
}

// An address is that of the engine that was registered there last in the tenant. The source that followed it is gone, and
// what it had. If the registration fails, nothing is replaced.
func TestRegisterAtKnownAddress(t *testing.T) {
	s := newService(t, Config{Allow: []string{"tcp://127.0.0.1:*"}, MaxSources: 3, Fleet: fleet.Config{MaxHolders: 3}})
	followed := func() (list []string) {
		for _, st := range s.Status() {
			list = append(list, fmt.Sprint(st.Tenant, " ", st.Engine, "/", st.Rank, " ", st.Endpoint))
		}
		return list
	}
	at := func(port int, engine string) Source {
		return Source{Endpoint: fmt.Sprint("tcp://127.0.0.1:", port), Model: "llama", Engine: engine, BlockSize: 16}
	}
	ranks := at(61_000, "a")
	ranks.Ranks = 2
	require.NoError(t, s.Register(ranks))
	ranks.Endpoint = "tcp://127.0.0.1:61001"
	require.NoError(t, s.Register(ranks))
	require.Equal(t, []string{"default a/0 tcp://127.0.0.1:61001", "default a/1 tcp://127.0.0.1:61002"}, followed(), "its ports shift")
	require.NoError(t, s.Register(at(61_001, "b")))
	require.NoError(t, s.Register(at(61_002, "c")))
	require.NoError(t, s.Register(at(61_002, "b")))
	require.NoError(t, s.Register(at(61_001, "c")))
	require.Equal(t, []string{"default c/0 tcp://127.0.0.1:61001", "default b/0 tcp://127.0.0.1:61002"}, followed(), "they swap")

	theirs, ours := at(61_001, "c"), at(61_003, "c")
	theirs.Tenant, theirs.Name = "x", "theirs"
	require.NoError(t, s.Register(theirs))
	require.NoError(t, s.Register(at(61_001, "d")))
	require.NoError(t, s.Unregister(llama, fleet.ID{Engine: "b"}))
	ours.Name = "ours"
	require.NoError(t, s.Add(ours))
	fixed := at(61_003, "e")
	fixed.Name = "d"
	require.NoError(t, s.Register(fixed))
	require.Equal(t, []string{"default e/0 tcp://127.0.0.1:61003", "default c/0 tcp://127.0.0.1:61003", "default d/0 tcp://127.0.0.1:61001", "x c/0 tcp://127.0.0.1:61001"}, followed(),
		"neither another tenant's nor a configured one")
}

// The pod IP of an engine that is gone is another engine's.
func TestRegisterAtAddressOfAnother(t *testing.T) {
	s := newService(t, Config{Allow: []string{"tcp://127.0.0.1:*"}, Fleet: fleet.Config{MaxHolders: 2}})
	p := eventstest.New(t)
	p.Publish(false, stored(1))
	require.NoError(t, s.Register(engineSource(p, "gone", 0)))
	awaitNext(t, s, "gone/0", 1)
	require.NoError(t, s.Register(engineSource(p, "new", 0)))
	awaitNext(t, s, "new/0", 1)
	require.Equal(t, "new/0=16(GPU=16) ", ask(t, s, Query{Hashes: hashesOf(1)}))
	require.Len(t, s.Status(), 1)

	ranks := engineSource(p, "large", 0)
	ranks.Ranks, ranks.Replay = 3, ""
	require.ErrorIs(t, s.Register(ranks), fleet.ErrTooMany)
	awaitNext(t, s, "new/0", 1)
	require.Equal(t, "new/0=16(GPU=16) ", ask(t, s, Query{Hashes: hashesOf(1)}))
	require.Len(t, s.Status(), 1)
	p.Close()
	other := engineSource(eventstest.New(t), "other", 0)
	other.Model, other.BlockSize = "another", 0
	other.Endpoint = p.Endpoint
	follower := s.active["new/0"].follower
	require.ErrorIs(t, s.Register(other), ErrField)
	require.Same(t, follower, s.active["new/0"].follower, "what can be known before stops nothing")
}

// One source stands for all ranks of an engine, each at the next ports. None is followed if one cannot be.
func TestRanks(t *testing.T) {
	s := newService(t, Config{MaxSources: 3})
	src := Source{
		Endpoint: "tcp://127.0.0.1:5557", Replay: "tcp://127.0.0.1:5657", KVEndpoint: "tcp://127.0.0.1:5757",
		Model: "llama", Engine: "a", Rank: 8, Ranks: 3, BlockSize: 16,
	}
	list, err := src.EachRank()
	require.NoError(t, err)
	require.Equal(t, Source{
		Endpoint: "tcp://127.0.0.1:5559", Replay: "tcp://127.0.0.1:5659", KVEndpoint: "tcp://127.0.0.1:5759",
		Model: "llama", Engine: "a", Rank: 10, BlockSize: 16, Name: "-10",
	}, list[2])
	require.NoError(t, s.Add(src))
	var names []string
	for _, st := range s.Status() {
		names = append(names, fmt.Sprint(st.Rank, " ", st.Name))
	}
	require.Equal(t, []string{"8 tcp://127.0.0.1:5557", "9 tcp://127.0.0.1:5558", "10 tcp://127.0.0.1:5559"}, names)

	s = newService(t, Config{MaxSources: 2, Allow: []string{"tcp://127.0.0.1:5557-5558", "tcp://127.0.0.1:5657-5659"}})
	require.ErrorIs(t, s.Register(src), ErrNotAllowed)
	require.Empty(t, s.Status())
	src.Ranks = 2
	require.ErrorIs(t, s.Register(src), ErrNotAllowed, "its kv_endpoint is not")
	src.KVEndpoint = ""
	require.NoError(t, s.Register(src))
	require.NoError(t, s.Register(src))
	for _, wrong := range []Source{{Endpoint: "tcp://a:5557", Replay: "tcp://a:5558"}, {Endpoint: "ipc:///run/a"}, {Endpoint: "tcp://a:65535"}} {
		wrong.Model, wrong.Engine, wrong.Ranks = "llama", "a", 2
		require.ErrorIs(t, wrong.Validate(), ErrField, wrong.Endpoint)
	}
}

// A source of another rank than its batches, and one of which nothing counts, say so and go on. gpu is GPU.
func TestSuspicions(t *testing.T) {
	s := newService(t, Config{})
	p, hints := eventstest.New(t), eventstest.New(t)
	inMedium := func(medium string) map[string]any {
		e := stored(1)
		e["medium"] = medium
		return e
	}
	p.Publish(false, inMedium("gpu"))
	hints.Publish(false, inMedium("cpu"))
	require.NoError(t, s.Add(engineSource(p, "a", 3)))
	require.NoError(t, s.Add(engineSource(hints, "b", 0)))
	awaitNext(t, s, "a/3", 1)
	awaitNext(t, s, "b/0", 1)
	require.Equal(t, "a/3=16(GPU=16) ", ask(t, s, Query{Hashes: hashesOf(1)}))
	require.Zero(t, *status(t, s, "a/3").BatchRank)
	require.Equal(t, "the batches are of data-parallel rank 0, and the source of rank 3; check dp_rank and the ports", status(t, s, "a/3").LastError)
	require.Contains(t, status(t, s, "b/0").LastError, `nothing counts: all blocks that were stored are in media such as "cpu"`)
	hints.Publish(false, stored(2))
	awaitNext(t, s, "b/0", 2)
	require.EqualValues(t, 1, status(t, s, "b/0").Errors)
}

// Sources go while the service closes.
func TestCloseWhileSourcesGo(t *testing.T) {
	for range 50 {
		s := newService(t, Config{Allow: []string{"tcp://127.0.0.1:*"}})
		var running sync.WaitGroup
		for rank := range 2 {
			require.NoError(t, s.Register(source(t, llama, "a", rank, 16)))
			running.Go(func() {
				if err := s.Unregister(llama, fleet.ID{Engine: "a", Rank: rank}); err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		}
		running.Go(s.Close)
		running.Wait()
	}
}

// The status of a source says at once what was dropped for others.
func TestStatusOfDropped(t *testing.T) {
	s := newService(t, Config{Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16, MaxBytes: 1 << 20}}}})
	for i, engine := range []string{"a", "b"} {
		require.NoError(t, s.Add(source(t, llama, engine, 0, 0)))
		h := s.fleetOf(t).Get(fleet.ID{Engine: engine})
		h.SetStale(false)
		b := events.Blocks{Group: i, Tier: gpu, Hashes: short(chain(engine, 30_000*i+1)), BlockSize: 16}
		require.NoError(t, h.Store(&b, make([]bool, b.Hashes.Len())))
	}
	h := s.fleetOf(t).Get(fleet.ID{Engine: "a"})
	b := events.Blocks{Tier: gpu, Hashes: short(chain("more", 10_000)), BlockSize: 16}
	require.NoError(t, h.Store(&b, make([]bool, b.Hashes.Len())))
	st := s.Status()
	require.EqualValues(t, 10_001, h.Len())
	require.Zero(t, st[0].Dropped)
	require.Positive(t, st[1].Dropped)
	require.False(t, st[1].Complete)
	require.EqualValues(t, 30_001-st[1].Dropped, st[1].Blocks)
}
