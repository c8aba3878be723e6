package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A store that is full evicts the blocks whose leases ended first, and none that is leased.
func TestStore(t *testing.T) {
	s := newStore(20)
	for id := range uint64(19) {
		require.True(t, s.put(id))
		s.now++
	}
	require.True(t, s.exists(0))
	require.True(t, s.put(19))
	require.True(t, s.has(0))
	require.False(t, s.has(1), "it was used longest ago")
	for id := range uint64(20) {
		s.exists(id)
	}
	require.True(t, s.put(20))
	require.True(t, s.exists(20))
	require.False(t, s.put(21), "all are leased")
	s.now += lease
	require.True(t, s.put(21))
}

func TestCache(t *testing.T) {
	c := newCache(3)
	c.use([]uint64{1, 2, 3, 4})
	require.Equal(t, 3, c.held([]uint64{1, 2, 3, 4}))
	c.use([]uint64{5})
	require.Equal(t, 2, c.held([]uint64{1, 2, 3}))
}

// Engine 0 holds block 1 and its lookups begin behind it; engine 1 floods the store, and then asks for a
// prompt behind block 1. Renewals keep the block, which nothing else asks for.
func TestRenewalKeepsWhatLiesBefore(t *testing.T) {
	var requests []request
	add := func(ids ...uint64) {
		requests = append(requests, request{
			at: time.Duration(len(requests)) * lease, tokens: int64(len(ids))*512 + 16, ids: ids, useful: len(ids),
		})
	}
	for n := range uint64(20) {
		add(1, 100+n)
		add(1000+10*n, 1001+10*n, 1002+10*n)
	}
	add()
	add(1)
	c := cell{consumer: true, engines: 2, part: 8}
	whole := run(c, requests, 120)
	c.local = true
	local := run(c, requests, 120)
	c.renew = true
	renewed := run(c, requests, 120)
	require.EqualValues(t, []int64{512, 0, 512}, []int64{whole.loaded, local.loaded, renewed.loaded})
	require.EqualValues(t, []int64{0, 19}, []int64{local.renewals, renewed.renewals})
	require.Less(t, local.lookups, whole.lookups)
}

func TestTable(t *testing.T) {
	requests, err := read("../testdata/conversation_excerpt.jsonl")
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, table(&out, requests))
	require.True(t, strings.HasPrefix(out.String(), "799 requests, "), out.String())
	require.Equal(t, 2+2+24, strings.Count(out.String(), "\n"))
	_, err = read("missing.jsonl")
	require.Error(t, err)
}
