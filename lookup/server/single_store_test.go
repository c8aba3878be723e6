package server

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// TestStoreOfOneBlock stores a chain block by block, with the number of each and the key before
// it, which have no use. A block counts as stored once it has arrived, whatever follows.
func TestStoreOfOneBlock(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	keys := lookuptest.Chain("a", 64, 32)
	key := func(i int) []byte { return keys[i*32 : (i+1)*32] }
	store := func(i int, frames ...[]byte) (message []byte) {
		rank := binary.BigEndian.AppendUint32(make([]byte, 8), uint32(i))
		return netproto.AppendRequest(nil, nil, netproto.TagStore, append([][]byte{rank, {0, 32}, key(i)}, frames...)...)
	}
	done, partly := []byte{netproto.StatusDone}, []byte{netproto.StatusPartial}
	for i := range 64 {
		frames, want := [][]byte{key(max(i-1, 0))}, done
		switch i {
		case 0, 9:
			frames = nil
		case 20: // a frame too many
			frames, want = append(frames, nil), partly
		}
		p.Send(t, store(i, frames...))
		require.Equal(t, want, p.Next(t)[0], i)
		require.EqualValues(t, i+1, server.Stat().Stored)
	}
	hit, err := dialTest(t, server).Lookup(t.Context(), 64*16, coordinator.NewHashes(keys, 32))
	require.NoError(t, err)
	require.EqualValues(t, 64*16, hit.Tokens)

	keys = lookuptest.Chain("b", 2, 32)
	cut := store(1, key(0))
	_, err = p.Write(cut[:len(cut)-32])
	require.NoError(t, err)
	require.NoError(t, p.Close())
	lookuptest.Eventually(t, "the key of a store that is cut", func() bool { return server.Stat().Stored == 65 })
}
