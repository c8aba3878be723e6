package server

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
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
	return append(netproto.AppendLookup(nil, nil, netproto.TagLookup, uint32(16*n), hashLen, len(hashes)), hashes...)
}

func rawExplain(hashes []byte, hashLen int) []byte {
	n := len(hashes) / hashLen
	return append(netproto.AppendLookup(nil, nil, netproto.TagExplain, uint32(16*n), hashLen, len(hashes)), hashes...)
}

func randomHashes(n, hashLen int) []byte {
	b := make([]byte, n*hashLen)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}

// turn serves bytes in a turn, as serveTraffic does.
func turn(ses *session, p []byte) error {
	ses.beginTurn()
	ses.lastActive.Store(monotime.At(ses.turnStart))
	return ses.endTurn(ses.receive(p))
}

// wake wakes a session in a turn, as serveTraffic does.
func wake(ses *session) error {
	ses.beginTurn()
	return ses.endTurn(ses.wake())
}
