package load

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/load/loadtest"
	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

func conversationOptions() Options {
	return Options{
		Hashes: Lengths{Each: []int{100, 61}}, Entries: 300, Seed: 5,
		Conversations: &workload.ConversationOptions{Turns: 5, Prefixes: 4, Zipf: 1.5},
	}
}

// engines makes the requests of two engines against a service, in turn, and returns what it
// asked for.
func engines(t *testing.T, pool coordinator.Pool, n int) (counts map[netproto.Tag]int, hits map[uint32]bool, service *lookup.Service) {
	t.Helper()
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool})
	require.NoError(t, err)
	s, err := newShaper(pool, nil)
	require.NoError(t, err)
	c, err := newConversations(conversationOptions().withDefaults(), s)
	require.NoError(t, err)
	var sl slot
	all := storing(c.stored())
	for parts, more := all(&sl, nil); more; parts, more = all(&sl, nil) {
		send(t, service, parts)
	}
	counts, hits = map[netproto.Tag]int{}, map[uint32]bool{}
	engines := []*engine{{c: c, engine: c.Engine(0)}, {c: c, engine: c.Engine(1)}}
	var follows [2]bool
	for i := range n {
		e := engines[i%2]
		parts, more := e.next(&sl, nil)
		require.True(t, more)
		require.Equal(t, follows[i%2], sl.tag != netproto.TagLookup, "an engine changes what it has looked up, at once")
		follows[i%2] = sl.leads
		if got := send(t, service, parts); sl.tag == netproto.TagLookup {
			require.Equal(t, sl.expect, got, "request %d", i)
			hits[got] = true
		}
		counts[sl.tag]++
	}
	return counts, hits, service
}

// The expected answers are those of a service that gets the same requests, in all pools.
func TestConversationAnswers(t *testing.T) {
	for name, pool := range pools() {
		t.Run(name, func(t *testing.T) {
			_, hits, _ := engines(t, pool, 600)
			assert.Greater(t, len(hits), 5, "prompts hit more from turn to turn")
		})
	}
}

// A turn is a lookup and a store, the end of a conversation an evict; the index does not grow.
func TestConversationRequests(t *testing.T) {
	counts, _, service := engines(t, coordinator.Pool{}, 4_400)
	assert.InDelta(t, 2_000, counts[netproto.TagLookup], 10)
	assert.InDelta(t, 2_000, counts[netproto.TagStore], 10)
	assert.InDelta(t, 400, counts[netproto.TagEvict], 20)
	assert.Less(t, service.Stat().Entries, int64(4*50+2*4*50+1))
}

// Prefixes are as many as the entries need.
func TestConversationPrefixes(t *testing.T) {
	o := Options{Conversations: &workload.ConversationOptions{}, Hashes: Lengths{Least: 64, Most: 64}, Entries: 1000}.withDefaults()
	assert.Equal(t, 32, o.Conversations.Prefixes)
	o = Options{Conversations: &workload.ConversationOptions{}, Hashes: Lengths{Each: []int{40, 60}}, Entries: 1000}.withDefaults()
	assert.Equal(t, 40, o.Conversations.Prefixes)
	s, err := newShaper(coordinator.Pool{}, nil)
	require.NoError(t, err)
	c, err := newConversations(o, s)
	require.NoError(t, err)
	assert.Equal(t, 1000, c.entries)
}

// The same seed makes the same requests, on every connection.
func TestConversationSeed(t *testing.T) {
	requests := func(seed uint64, engineNumber int) (all []byte) {
		o := conversationOptions()
		o.Seed = seed
		s, err := newShaper(coordinator.Pool{}, nil)
		require.NoError(t, err)
		c, err := newConversations(o.withDefaults(), s)
		require.NoError(t, err)
		e := &engine{c: c, engine: c.Engine(engineNumber)}
		for range 50 {
			var sl slot
			parts, _ := e.next(&sl, nil)
			for _, part := range parts {
				all = append(all, part...)
			}
		}
		return all
	}
	assert.Equal(t, requests(1, 0), requests(1, 0))
	assert.NotEqual(t, requests(1, 0), requests(1, 1))
	assert.NotEqual(t, requests(1, 0), requests(2, 0))
}

// A run of conversations, in both loops, has right answers of a real server.
func TestRunConversations(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"closed":     func(*Options) {},
		"one":        func(o *Options) { o.Connections = 1 },
		"poisson":    func(o *Options) { o.Rates = []float64{5000, 10_000} },
		"even":       func(o *Options) { o.Rates, o.Arrivals = []float64{5000}, Even },
		"random too": func(o *Options) { o.Rates, o.Arrivals, o.Conversations = []float64{5000}, Poisson, nil },
	} {
		t.Run(name, func(t *testing.T) {
			o := conversationOptions()
			o.Connections, o.Requests, o.Timeout = 6, 1000, patience
			change(&o)
			var got problems
			o.OnProblem = got.add
			addr, service := serve(t, coordinator.Pool{}, anywhere)
			o.Connect = addr
			r, err := Run(t.Context(), o)
			require.NoError(t, err)
			assert.Empty(t, got.all)
			assert.Zero(t, r.Wrong+r.Refused)
			assert.EqualValues(t, 1000*max(1, len(o.Rates)), r.Requests)
			assert.Equal(t, o.Conversations != nil, r.Workload == "conversations")
			assert.Equal(t, o.Conversations != nil, r.Stores > r.Evicts && r.Evicts > 0)
			if o.Conversations != nil {
				assert.Equal(t, []any{4, 1.5, 5, 0.0, workload.MissAt("")}, []any{r.Prefixes, r.Zipf, r.Turns, r.HitShare, r.MissAt})
				assert.Positive(t, service.Stat().MissTokens)
			}
			if len(o.Rates) > 0 {
				assert.Equal(t, name != "even", r.Arrivals == Poisson)
			}
		})
	}
}

// Prompts fall due at the rate; stores and evicts follow them and have no place of their own.
func TestConversationRate(t *testing.T) {
	t.Parallel()
	o := conversationOptions()
	o.Connections, o.Duration, o.Timeout, o.Rates, o.Arrivals = 6, 500*time.Millisecond, patience, []float64{1000}, Even
	o.Connect, _ = serve(t, coordinator.Pool{}, anywhere)
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.InDelta(t, 500, r.Requests-r.Stores-r.Evicts+r.Unsent, 2*6)
}

// A wrong answer in a conversation is found.
func TestConversationFaults(t *testing.T) {
	for fault, text := range map[loadtest.Fault]string{
		loadtest.OffByOne: "tokens, got ", loadtest.Forgets: "below what was stored; does the server evict?",
		loadtest.Refuses: "got a refusal (00)", loadtest.NoStore: "got a refusal (00)",
	} {
		t.Run(string(fault), func(t *testing.T) {
			addr := start(t, &loadtest.Server{Fault: fault, Honest: 5})
			o := conversationOptions()
			o.Connect, o.Connections, o.Requests, o.Timeout = addr, 2, 400, patience
			var got problems
			o.OnProblem = got.add
			r, err := Run(t.Context(), o)
			if fault == loadtest.NoStore && err != nil { // of a prefix
				require.ErrorIs(t, err, measure.ErrAnswer)
				return
			}
			require.NoError(t, err)
			require.NotEmpty(t, got.all)
			assert.Positive(t, r.Wrong+r.Refused)
			assert.Contains(t, got.all[0].Error(), text)
		})
	}
}

func TestConversationOptions(t *testing.T) {
	good := conversationOptions()
	good.Connect, good.Requests = "x", 1
	checkOptions(t, good, map[string]func(*Options){
		"requests are not pipelined":   func(o *Options) { o.Pipeline = 2 },
		"no further stores":            func(o *Options) { o.Stores = 0.1 },
		"conversations of 9 hashes":    func(o *Options) { o.Hashes = Lengths{Least: 9, Most: 9} },
		"arrivals \"now\"":             func(o *Options) { o.Arrivals = "now" },
		"that arrive by Poisson's law": func(o *Options) { o.Rates, o.Requests, o.Duration = []float64{1e7}, 0, 1e11 },
		"-1 prefixes":                  func(o *Options) { o.Conversations = &workload.ConversationOptions{Prefixes: -1} },
	})
}

// Prefixes are asked for by Zipf's law: that of rank k, from 0, as 1/(1+k)^s.
func TestConversationPopularity(t *testing.T) {
	o := conversationOptions()
	o.Hashes, o.Conversations.Prefixes = Lengths{Least: 12, Most: 12}, 50
	s, err := newShaper(coordinator.Pool{}, nil)
	require.NoError(t, err)
	c, err := newConversations(o.withDefaults(), s)
	require.NoError(t, err)
	rank := map[*byte]int{}
	for i := range c.NumPrefixes() {
		rank[&c.Prefix(i)[0]] = i
	}
	const turns = 60_000
	e := &engine{c: c, engine: c.Engine(0)}
	counts := make([]float64, c.NumPrefixes())
	for range turns {
		var sl slot
		for e.next(&sl, nil); sl.leads; {
			e.next(&sl, nil)
		}
		counts[rank[&e.turn.Prefix[0]]] += 1.0 / turns
	}
	all := 0.0
	for k := range counts {
		all += math.Pow(1+float64(k), -1.5)
	}
	for k := range 10 {
		assert.InEpsilon(t, math.Pow(1+float64(k), -1.5)/all, counts[k], 0.2, "rank %d", k)
	}
}

// The arrivals of all workers together are one Poisson process: as many in a time as its mean
// says, with a variance as large as the mean. Steps and seeds have others.
func TestPoissonArrivals(t *testing.T) {
	arrivals := func(seed uint64, step int) (all []int64) {
		r := &runner{o: Options{Rates: []float64{1000, 1000}, Arrivals: Poisson, Duration: 100 * time.Second, Seed: seed}, workers: make([]*worker, 3)}
		for i := range r.workers {
			w := &worker{number: i, stage: stage{period: 1e6, workers: 3}, times: r.arrivals(step, 1000, i)}
			for n := range w.dueBy(100e9) {
				all = append(all, w.dueAt(n))
			}
		}
		return all
	}
	all := arrivals(3, 0)
	counts := make([]float64, 1000) // in a tenth of a second
	for _, at := range all {
		counts[at/1e8]++
	}
	mean, variance := 0.0, 0.0
	for _, n := range counts {
		mean += n / float64(len(counts))
	}
	for _, n := range counts {
		variance += (n - mean) * (n - mean) / float64(len(counts))
	}
	assert.InEpsilon(t, 100, mean, 0.02)
	assert.InEpsilon(t, 100, variance, 0.15)
	assert.Equal(t, all, arrivals(3, 0))
	assert.NotEqual(t, all[:10], arrivals(3, 1)[:10])
	assert.NotEqual(t, all[:10], arrivals(4, 0)[:10])
	assert.Nil(t, (&runner{o: Options{Arrivals: Even}}).arrivals(0, 5, 0))
}
