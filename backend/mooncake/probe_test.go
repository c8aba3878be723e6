package mooncake

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
)

// The request is that of the client of v0.3.14, without the literal of its type and what its padding had.
func TestEncodeProbe(t *testing.T) {
	body, _ := appendExist(nil, formProbe, backend.KeyList{"a", "missing", "b"}, 0, 3, "default")
	require.Equal(t, unhex(t, "444d5ab7 00 00000000000000 0100000000000000 03 0161 076d697373696e67 0162 0764656661756c74"), body)
}

func TestProbe(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	f.probes = true
	f.present["odd"] = storeNotFound
	c := newClient(t, Config{Masters: []string{f.addr}})
	for range 3 {
		answers, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here", "nowhere", "odd", "there"}, true)
		require.NoError(t, err)
		require.Equal(t, []int{1, 0, storeNotFound, 1}, answers)
	}
	require.EqualValues(t, 3, f.probed.Load())
	require.Zero(t, f.numQueries.Load())
	require.Zero(t, f.leaseAsked.Load(), "asking for the lease would renew one")

	f.mu.Lock()
	f.present["here"] = storeNotServing
	f.mu.Unlock()
	_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, true)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.NoError(t, c.Close())
	_, err = c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, true)
	require.True(t, errors.Is(err, backend.ErrUnavailable) && err.Error() == errClosed.Error())
}

// A master that knows no probes is asked by the call that leases, and not asked for probes again.
func TestProbeOfOlderMaster(t *testing.T) {
	for form, probes := range map[Form]int64{FormTenant: 1, FormKeys: 0} {
		f := startFake(t, loopback, form)
		c := newClient(t, Config{Masters: []string{f.addr}})
		waitFilled(t, c)
		for range 3 {
			answers, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here", "nowhere", "there"}, true)
			require.NoError(t, err)
			require.Equal(t, []int{1, 0, 1}, answers)
		}
		require.EqualValues(t, 3, f.numQueries.Load())
		require.Equal(t, probes, f.probed.Load(), form)
	}
}
