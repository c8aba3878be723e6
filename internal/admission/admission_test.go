package admission

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Large requests take what they may: small ones have the rest.
func TestSizes(t *testing.T) {
	a := New(1000)
	require.EqualValues(t, 750, a.MaxLarge())
	require.True(t, a.Admit(400, false, 0))
	require.True(t, a.Admit(350, false, 0), "three quarters")
	require.False(t, a.Admit(1, false, 0))
	require.True(t, a.Admit(250, true, 0), "the last quarter")
	require.False(t, a.Admit(1, true, 0))

	a.Free(250, true)
	require.False(t, a.Admit(250, false, 0), "it is for small ones")
	a.Free(350, false)
	require.True(t, a.Admit(350, false, 0))
	a.Free(350, false)
	a.Free(400, false)
	require.Zero(t, a.Held()+a.large.Load())
}

// Peers take as much as they can: each leaves for others as much as it has, of large requests beside what is for small ones.
func TestPeers(t *testing.T) {
	for maxBytes, small := range map[int64]bool{900: true, 1200: false} {
		a := New(maxBytes)
		for i, want := range []int64{450, 220, 110} {
			held := int64(0)
			for a.Admit(10, small, held) {
				held += 10
			}
			require.Equal(t, want, held, "peer %d", i)
		}
		require.True(t, a.Admit(120, small, 0), "the only request of a peer needs only room")
	}
}
