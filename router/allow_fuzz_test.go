package router

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/router/events"
)

// An endpoint that a list allows is dialed at what the list names: an address of its network and a port of its range, its
// name or its path.
func FuzzAllowed(f *testing.F) {
	list, err := newAllowList([]string{"tcp://10.0.0.0/8:5557-5564", "tcp://engine-0:*", "ipc:///run/e.sock"})
	require.NoError(f, err)
	network := netip.MustParsePrefix("10.0.0.0/8")
	for _, endpoint := range []string{
		"tcp://10.1.2.3:5557", "tcp://[::ffff:10.1.2.3]:5557", "tcp://ENGINE-0:1", "ipc:///run/e.sock", "tcp://127.0.0.1:5557", "tcp://[::10.0.0.1]:5557",
		"tcp://010.0.0.1:5557", "tcp://10.0.0.1:05557", "tcp://[10.0.0.1%eth0]:5557", "tcp://10.1:5557",
	} {
		f.Add(endpoint)
	}
	f.Fuzz(func(t *testing.T, endpoint string) {
		if !list.allows(endpoint) {
			return
		}
		kind, address, err := events.SplitEndpoint(endpoint)
		require.NoError(t, err)
		if kind == "unix" {
			require.Equal(t, "/run/e.sock", address)
			return
		}
		if name, _, _ := strings.Cut(address, ":"); strings.EqualFold(name, "engine-0") {
			return
		}
		at, err := netip.ParseAddrPort(address) // a name would be looked up
		require.NoError(t, err, endpoint)
		require.True(t, network.Contains(at.Addr().Unmap()) && at.Port() >= 5557 && at.Port() <= 5564, "%q is dialed at %v", endpoint, at)
	})
}
