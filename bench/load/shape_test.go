package load

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// hybrid is a pool of four groups, of three strides, on two ranks.
func hybrid() coordinator.Pool {
	return coordinator.Pool{HashBlockSize: 16, TPSize: 2, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 32},
		{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 64},
		{Kind: coordinator.Mamba, BlockSize: 64},
		{Kind: coordinator.FullAttention, BlockSize: 32, Variant: 1, IsEagleGroup: true},
	}}
}

// pools are pools of all kinds.
func pools() map[string]coordinator.Pool {
	interval := 0
	return map[string]coordinator.Pool{
		"plain":  {},
		"blocks": {HashBlockSize: 8, Groups: []coordinator.Group{{BlockSize: 32}}},
		"hybrid": hybrid(),
		"window": {Groups: []coordinator.Group{{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 48}}},
		"masked": {SchedulerBlockSize: 128, RetentionInterval: &interval, Groups: []coordinator.Group{
			{BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 33, IsEagleGroup: true}}},
		"fine": {VLLM: "0.28.0", PCPSize: 2, Groups: []coordinator.Group{
			{BlockSize: 32}, {Kind: coordinator.Mamba, BlockSize: 64, MambaCacheMode: "align"}}},
	}
}

// send gives a service the bytes of one request and returns the hit of a lookup.
func send(t *testing.T, service *lookup.Service, parts [][]byte) uint32 {
	t.Helper()
	var request []byte
	for _, part := range parts {
		require.NotEmpty(t, part, "the kernel would take it for the end")
		request = append(request, part...)
	}
	frames, used, err := netproto.ParseMessage(request, netproto.Limits{}, nil)
	require.NoError(t, err)
	require.Len(t, request, used)
	require.Len(t, frames, 4)
	require.EqualValues(t, hashLen, netproto.ParseInt(frames[2]))
	if string(frames[0]) == "lookup" {
		hit, err := service.Lookup(t.Context(), int64(netproto.ParseInt(frames[1])), coordinator.NewHashes(frames[3], hashLen))
		require.NoError(t, err)
		return uint32(hit.Tokens)
	}
	number := func(at int) uint16 { return uint16(netproto.ParseInt(frames[1][at : at+2])) }
	at := coordinator.GroupRank{Group: number(0), TPRank: number(2), PPRank: number(4), PCPRank: number(6)}
	do := service.Store
	if string(frames[0]) == "evict" {
		do = service.Evict
	}
	require.NoError(t, do(t.Context(), at, coordinator.NewHashes(frames[3], hashLen)))
	return 0
}

// What a chain must hit is what the service hits, wherever a lookup leaves it, and
// after an evict.
func TestAnswers(t *testing.T) {
	for name, pool := range pools() {
		t.Run(name, func(t *testing.T) {
			service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool})
			require.NoError(t, err)
			s, err := newShaper(pool, nil)
			require.NoError(t, err)
			sh, err := s.shape(50)
			require.NoError(t, err)
			fresh := rand.NewChaCha8([32]byte{9})
			unknown := make([]byte, 50*hashLen)
			_, _ = fresh.Read(unknown) // never fails
			hits := map[uint32]bool{}
			var c chain
			for leaves := range 50 {
				c, err = s.chain(sh, make([]byte, sh.size()), leaves, fresh)
				require.NoError(t, err)
				all := storing([]piece{c.piece()})
				var sl slot
				for parts, more := all(&sl, nil); more; parts, more = all(&sl, nil) {
					assert.Equal(t, netproto.TagStore, sl.tag)
					send(t, service, parts)
				}
				require.Equal(t, sh.whole, send(t, service, c.ask(&sl, 50, sh.whole, nil, nil)))
				require.Equal(t, c.miss, send(t, service, c.ask(&sl, leaves, c.miss, unknown[leaves*hashLen:], nil)), "leaves at %d", leaves)
				assert.Equal(t, slot{tag: netproto.TagLookup, hashes: 50, stored: int32(leaves), expect: c.miss, room: sl.room}, sl)
				hits[c.miss] = true
			}
			assert.Greater(t, len(hits), 2)
			assert.Positive(t, sh.whole)
			var sl slot
			var evict changes
			for evict.begin(netproto.TagEvict, c.piece()); evict.left(); {
				send(t, service, evict.next(&sl, nil))
			}
			nothing, err := s.miss(sh, 0)
			require.NoError(t, err)
			assert.Equal(t, nothing, send(t, service, c.ask(&sl, 50, 0, nil, nil)))
		})
	}
}

func TestShapeTooSmall(t *testing.T) {
	s, err := newShaper(coordinator.Pool{SchedulerBlockSize: 64}, nil)
	require.NoError(t, err)
	_, err = s.shape(3)
	require.ErrorIs(t, err, measure.ErrOptions)
	_, err = newShaper(coordinator.Pool{TPSize: -1}, nil)
	require.ErrorIs(t, err, measure.ErrOptions)
}
