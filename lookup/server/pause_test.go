package server

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// TestStoresOfClosedPeers has peers send a store that takes several turns and close at once:
// what has arrived is stored, also if reading was paused when the peer closed.
func TestStoresOfClosedPeers(t *testing.T) {
	const peers, keys = 10, 5000
	for _, addr := range []string{"tcp://127.0.0.1:0", "ipc://" + t.TempDir() + "/s"} {
		service, err := lookup.NewService(blocks16)
		require.NoError(t, err)
		server, err := New(service, Config{Listen: []string{addr}, Loops: 2})
		require.NoError(t, err)
		require.NoError(t, server.Start(t.Context()))
		network, path, _ := strings.Cut(server.Addrs()[0], "://")
		if network == "ipc" {
			network = "unix"
		}
		for i := range peers {
			conn, err := net.Dial(network, path)
			require.NoError(t, err)
			blob := lookuptest.Chain(fmt.Sprint("peer", i), keys, 32)
			_, err = conn.Write(append(netproto.AppendKeys(nil, nil, netproto.TagStore, netproto.Rank{}, 32, len(blob)), blob...))
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		}
		lookuptest.Eventually(t, addr, func() bool { return server.Stat().Stored == peers*keys })
		require.Positive(t, server.Stat().TurnsCut)
		require.NoError(t, server.Shutdown(context.Background()))
		require.Zero(t, server.heldBytes())
	}
}
