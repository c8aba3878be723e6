package router

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/router/fleet"
)

// randomEngine is an engine that counts the copies of its blocks.
type randomEngine struct {
	*eventstest.Publisher
	name   string
	copies map[uint64]int
	dead   bool
	local  bool // its endpoints name localhost
}

// numRandomBlocks is the length of the prompt of which engines have blocks.
const numRandomBlocks = 8

// publish changes some blocks and publishes that.
func (e *randomEngine) publish(random *rand.Rand) {
	var list []map[string]any
	for range 1 + random.IntN(4) {
		n := 1 + random.Uint64N(numRandomBlocks)
		switch random.IntN(12) {
		case 0:
			clear(e.copies)
			list = append(list, eventstest.Cleared())
		case 1, 2, 3:
			e.copies[n] = max(0, e.copies[n]-1)
			list = append(list, removed(n))
		default:
			e.copies[n]++
			list = append(list, stored(n))
		}
	}
	e.Publish(random.IntN(3) == 0, list...)
}

// tokens returns how much of the prompt the engine has.
func (e *randomEngine) tokens() (n int64) {
	for e.copies[uint64(n/16)+1] > 0 {
		n += 16
	}
	return n
}

// source returns a registration of the engine: its fields are written in one of several ways.
func (e *randomEngine) source(random *rand.Rand) Source {
	src := engineSource(e.Publisher, e.name, 0)
	if random.IntN(2) == 0 {
		src.Type, src.Tenant = TypeVLLM, DefaultTenant
	}
	if e.local {
		src.Endpoint = strings.Replace(src.Endpoint, "127.0.0.1", "localhost", 1)
		src.Replay = strings.Replace(src.Replay, "127.0.0.1", "localhost", 1)
	}
	return src
}

// randomFleet is engines, of which those of registered are registered everywhere.
type randomFleet struct {
	t          *testing.T
	random     *rand.Rand
	engines    map[string]*randomEngine
	registered map[string]bool
	refused    map[*Service]map[string]bool // registrations, as their sender knows
	peer       *Service
}

func newRandomFleet(t *testing.T, seed uint64) *randomFleet {
	f := &randomFleet{
		t: t, random: rand.New(rand.NewPCG(seed, 11)), engines: map[string]*randomEngine{}, registered: map[string]bool{},
		refused: map[*Service]map[string]bool{},
	}
	f.peer = f.service(true, nil)
	for i := range 6 {
		f.begin(fmt.Sprint("engine-", i))
	}
	return f
}

// service returns a service without sources. Engines at localhost are not allowed everywhere.
func (f *randomFleet) service(local bool, log *logtest.Buffer) *Service {
	cfg := Config{
		Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}, Allow: []string{"tcp://127.0.0.1:*"},
	}
	if local {
		cfg.Allow = append(cfg.Allow, "tcp://localhost:*")
	}
	if log != nil {
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	s := newService(f.t, cfg)
	f.refused[s] = map[string]bool{}
	return s
}

// begin begins an engine, at a new address if it was there before.
func (f *randomFleet) begin(name string) *randomEngine {
	if e := f.engines[name]; e != nil {
		e.Close()
	}
	e := &randomEngine{Publisher: eventstest.New(f.t), name: name, copies: map[uint64]int{}, local: f.random.IntN(4) == 0}
	f.engines[name] = e
	for range 1 + f.random.IntN(20) {
		e.publish(f.random)
	}
	return e
}

// restart restarts an engine where it is.
func (f *randomFleet) restart(e *randomEngine) {
	e.Restart()
	clear(e.copies)
	e.publish(f.random)
}

// change changes the registration of one engine, at the peer and then at the replicas.
func (f *randomFleet) change(replicas ...*Service) {
	name := fmt.Sprint("engine-", f.random.IntN(len(f.engines)))
	e := f.engines[name]
	register := true
	switch f.random.IntN(6) {
	case 0: // an engine is gone
		register = false
	case 1, 2: // it comes back at a new address
		e = f.begin(name)
	case 3: // it restarts where it was, which a replica that follows it would see a moment later
		if !e.dead && len(replicas) == 0 {
			f.restart(e)
		}
	default: // it registers again
	}
	f.registered[name] = register
	src := e.source(f.random)
	for _, s := range append([]*Service{f.peer}, replicas...) {
		err := ErrLoading
		for errors.Is(err, ErrLoading) { // as a client asks again after status 503
			if register {
				err = s.Register(src)
			} else {
				err = s.Unregister(llama, fleet.ID{Engine: name})
			}
		}
		f.refused[s][name] = errors.Is(err, ErrNotAllowed)
		if f.refused[s][name] {
			err = s.Unregister(llama, fleet.ID{Engine: name}) // what was registered before, at another address
		}
		if err != nil && !errors.Is(err, ErrNoSource) {
			f.t.Error(err)
		}
	}
}

// check asks a service, and says what is wrong: an engine has less in the answer than it has, and is neither unsure nor
// refused, or more. settled says that the answer is as it will stay.
func (f *randomFleet) check(s *Service) (wrong string, settled bool) {
	var numbers []uint64
	for n := range uint64(numRandomBlocks) {
		numbers = append(numbers, n+1)
	}
	var a Answer
	require.NoError(f.t, s.Query(f.t.Context(), &Query{ModelKey: llama, Hashes: hashesOf(numbers...)}, &a))
	got, unsure := map[string]int64{}, map[string]bool{}
	for _, h := range a.Holders {
		got[h.Engine] = h.Tokens
	}
	for _, u := range a.Unsure {
		unsure[u.Engine] = true
	}
	settled = true
	for name, e := range f.engines {
		want := e.tokens()
		if !f.registered[name] || f.refused[s][name] {
			want = 0
		}
		isFollowed := slices.ContainsFunc(s.Status(), func(st SourceStatus) bool { return st.Engine == name })
		if got[name] > want || got[name] < want && !unsure[name] {
			wrong += fmt.Sprintf("%s has %d, and the answer %d; ", name, want, got[name])
		}
		settled = settled && (got[name] == want || e.dead || !isFollowed)
	}
	return wrong, settled
}

// replicate starts a replica from a service while registrations change, and checks all that it answers.
func (f *randomFleet) replicate(from *Service, local bool) *Service {
	var log logtest.Buffer
	replica := f.service(local, &log)
	maps.Copy(f.refused[replica], f.refused[from])
	peer := serve(f.t, serveDumps(from))
	var busy []*activeSource
	for _, a := range from.sources() {
		if f.random.IntN(8) == 0 {
			_, err := a.follower.Pause(f.t.Context())
			require.NoError(f.t, err)
			busy = append(busy, a)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.engines)) { // which the busy ones have not applied
		switch e := f.engines[name]; {
		case e.dead:
		case f.random.IntN(6) == 0:
			f.restart(e)
		case f.random.IntN(2) == 0:
			e.publish(f.random)
		}
	}
	var changing sync.WaitGroup
	var started atomic.Bool
	changes := f.random.IntN(4)
	changing.Go(func() {
		for replica.Ready() == nil && !started.Load() { // until Start has begun
			time.Sleep(time.Millisecond)
		}
		for range changes {
			f.change(replica)
		}
	})
	err := replica.Start(f.t.Context(), StartConfig{Peers: []string{peer}, PeerTimeout: time.Minute})
	started.Store(true)
	for _, a := range busy {
		a.follower.Unpause()
	}
	require.NoError(f.t, err)
	changing.Wait()
	eventually(f.t, func() bool { return replica.Ready() == nil })
	var wrong string
	eventually(f.t, func() bool {
		var settled bool
		wrong, settled = f.check(replica)
		return settled || wrong != ""
	})
	require.Empty(f.t, wrong, log.String())
	for id := range replica.unfollowed {
		line := fmt.Sprintf("is not followed, so answers name it as unsure\" source=%s/0 ", id.Engine)
		require.Equal(f.t, 1, strings.Count(log.String(), line), log.String())
	}
	return replica
}

// A replica is started while engines are busy, restart, register, move and go. From its first answer on no engine has more in
// it than it has, and one that has less is named as unsure.
//
// HITLINE_TEST_REPLICAS is how long that goes on, such as 30m, and HITLINE_TEST_SEED which changes come first.
func TestReplicasOfChangingFleets(t *testing.T) {
	seed, end := uint64(time.Now().UnixNano()), time.Now() //nolint:gosec // any number
	if text := os.Getenv("HITLINE_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	if text := os.Getenv("HITLINE_TEST_REPLICAS"); text != "" {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		end = end.Add(d)
	}
	for round := 0; round < 3 || time.Now().Before(end); round++ {
		t.Run(fmt.Sprint("HITLINE_TEST_SEED=", seed), func(t *testing.T) { replicateRandomFleet(t, seed) })
		if seed++; t.Failed() {
			return
		}
	}
}

func replicateRandomFleet(t *testing.T, seed uint64) {
	f := newRandomFleet(t, seed)
	for range 8 {
		f.change()
	}
	for _, name := range slices.Sorted(maps.Keys(f.engines)) {
		if e := f.engines[name]; f.random.IntN(8) == 0 {
			e.Close()
			e.dead = true
			eventually(t, func() bool {
				return !slices.ContainsFunc(f.peer.Status(), func(st SourceStatus) bool { return st.Engine == name && !st.Stale })
			})
		}
	}
	first := f.replicate(f.peer, f.random.IntN(2) == 0)
	second := f.replicate(first, true)
	for _, s := range []*Service{f.peer, second} {
		eventually(t, func() bool {
			wrong, settled := f.check(s)
			return settled && wrong == ""
		})
	}
}
