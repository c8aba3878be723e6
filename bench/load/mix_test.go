package load

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

func newTestMix(t *testing.T, pool coordinator.Pool, o Options) (*chains, *mix) {
	t.Helper()
	o = o.withDefaults()
	require.NoError(t, Options{Connect: "x", Requests: 1, Stores: o.Stores, Evicts: o.Evicts}.Validate())
	s, err := newShaper(pool, nil)
	require.NoError(t, err)
	c, err := newChains(o, s)
	require.NoError(t, err)
	m, err := newMix(o, c, s, 3)
	require.NoError(t, err)
	return c, m
}

// Requests are made in the proportions that were asked for.
func TestMixShares(t *testing.T) {
	const n = 40_000
	for _, o := range []Options{
		{HitShare: 1}, {HitShare: 0}, {HitShare: 0.9}, {HitShare: 0.5, Stores: 0.1, Evicts: 0.1}, {Stores: 0.25}, {Evicts: 0.2},
	} {
		_, m := newTestMix(t, coordinator.Pool{}, o)
		counts, hits := map[netproto.Tag]int{}, 0
		for range n {
			var s slot
			_, more := m.next(&s, nil)
			require.True(t, more)
			counts[s.tag]++
			if s.tag == netproto.TagLookup && s.stored == s.hashes {
				hits++
			}
		}
		share := func(count int) float64 { return float64(count) / n }
		// An operation with a change is two requests: the change and a lookup.
		changes := o.Stores + o.Evicts
		stores, evicts := o.Stores/(1+changes), o.Evicts/(1+changes)
		if o.Stores == 0 { // what is evicted has to be stored
			stores, evicts = evicts/2, evicts/2
		}
		assert.InDelta(t, stores, share(counts[netproto.TagStore]), 0.03, "%+v", o)
		assert.InDelta(t, evicts, share(counts[netproto.TagEvict]), 0.03, "%+v", o)
		free := share(n - counts[netproto.TagStore]*2 - counts[netproto.TagEvict]*2)
		assert.InDelta(t, o.HitShare*free+stores, share(hits), 0.03, "%+v", o)
	}
}

// The expected answers are those of a service that gets the same requests in order.
func TestMixAnswers(t *testing.T) {
	for _, o := range []Options{
		{HitShare: 0.5, Stores: 0.2, Evicts: 0.2, Pipeline: 5}, {Stores: 0.5}, {Evicts: 0.5, Hashes: Lengths{Least: 8, Most: 99}},
	} {
		pool := hybrid()
		service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool})
		require.NoError(t, err)
		c, m := newTestMix(t, pool, o)
		var s slot
		all := storing(c.stored())
		for parts, more := all(&s, nil); more; parts, more = all(&s, nil) {
			send(t, service, parts)
		}
		for i := range 500 {
			parts, _ := m.next(&s, nil)
			if got := send(t, service, parts); s.tag == netproto.TagLookup {
				require.Equal(t, s.expect, got, "request %d", i)
			}
		}
	}
}

// The bytes of a request stay as they are while it may be under way.
func TestMixKeepsBytes(t *testing.T) {
	const depth = 6
	_, m := newTestMix(t, coordinator.Pool{}, Options{Stores: 0.5, Pipeline: depth})
	m.own = m.own[:2] // so few that one comes round while it is under way
	type made struct {
		parts [][]byte
		bytes []byte
	}
	var under []made
	renewed := false
	for range 5000 {
		var s slot
		parts, _ := m.next(&s, nil)
		under = append(under, made{parts, bytes.Join(parts, nil)})
		for _, one := range under {
			require.Equal(t, one.bytes, bytes.Join(one.parts, nil))
		}
		if len(under) == depth { // the next is made when this one was answered
			under = under[1:]
		}
		renewed = renewed || m.own[0].renewed > 2
	}
	assert.True(t, renewed)
}

func TestChains(t *testing.T) {
	s, err := newShaper(coordinator.Pool{}, nil)
	require.NoError(t, err)
	o := Options{Entries: 5000, Hashes: Lengths{Least: 10, Most: 400}, Seed: 5}.withDefaults()
	c, err := newChains(o, s)
	require.NoError(t, err)
	seen, hashes, least, most := map[string]bool{}, 0, 1000, 0
	for i := range c.all {
		n := c.all[i].shape.hashes
		least, most = min(least, n), max(most, n)
		hashes += n
		for b := c.all[i].hashes(); len(b) > 0; b = b[hashLen:] {
			seen[string(b[:hashLen])] = true
		}
		assert.Less(t, c.all[i].leaves, n)
	}
	for b := c.unknown; len(b) > 0; b = b[hashLen:] {
		seen[string(b[:hashLen])] = true
	}
	assert.Equal(t, []int{10, 400, c.hashes, hashes + leastAbsent + 400}, []int{least, most, hashes, len(seen)}, "no hash twice")
	assert.GreaterOrEqual(t, hashes, 5000)

	again, err := newChains(o, s)
	require.NoError(t, err)
	assert.Equal(t, c.all[7].request, again.all[7].request, "of the same seed")
	other, err := newChains(Options{Seed: 6, Entries: 5000, Hashes: o.Hashes}.withDefaults(), s)
	require.NoError(t, err)
	assert.NotEqual(t, c.all[7].request, other.all[7].request)
}

// Misses ask for another absent hash each, not for one that is hot in every cache.
func TestAbsentHashes(t *testing.T) {
	const n = 2000
	for _, at := range []workload.MissAt{workload.MissFirst, workload.MissMiddle, workload.MissTail} {
		_, m := newTestMix(t, coordinator.Pool{}, Options{MissAt: at})
		seen := map[string]bool{}
		for range n {
			var s slot
			parts, _ := m.next(&s, nil)
			require.Less(t, s.stored, s.hashes)
			request := bytes.Join(parts, nil)
			seen[string(request[len(request)-int(s.hashes-s.stored)*hashLen:][:hashLen])] = true
		}
		assert.Greater(t, len(seen), n*9/10, at)
	}
}

// One seed makes the same requests on every connection, another seed others.
func TestSeedMakesRequests(t *testing.T) {
	requests := func(o Options) []byte {
		_, m := newTestMix(t, coordinator.Pool{}, o)
		var all []byte
		for range 300 {
			var s slot
			parts, _ := m.next(&s, nil)
			all = append(all, bytes.Join(parts, nil)...)
		}
		return all
	}
	o := Options{HitShare: 0.5, Stores: 0.1, Evicts: 0.1}.withDefaults() // which draws a seed
	require.NotZero(t, o.Seed)
	first := requests(o)
	assert.Equal(t, first, requests(o))
	o.Seed++
	assert.NotEqual(t, first, requests(o))
}

func TestLengths(t *testing.T) {
	assert.Equal(t, []int{64}, Lengths{Least: 64, Most: 64}.quantised())
	all := Lengths{Least: 16, Most: 4096}.quantised()
	assert.Equal(t, []int{16, 4096}, []int{all[0], all[len(all)-1]})
	below := 0
	for i, n := range all {
		assert.True(t, i == 0 || n >= all[i-1])
		if n < 256 {
			below++
		}
	}
	assert.Equal(t, len(all)/2, below, "half of them below the geometric mean")
	for want, l := range map[string]Lengths{"64": {Least: 64, Most: 64}, "1-9": {Least: 1, Most: 9}} {
		assert.Equal(t, want, l.String())
	}
}
