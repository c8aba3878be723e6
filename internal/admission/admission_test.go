package admission

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// Large requests take what they may: small ones have the rest.
func TestSizes(t *testing.T) {
	a := New(1000)
	require.EqualValues(t, 375, a.MaxRequest())
	require.True(t, a.Admit(400, false, 0))
	require.True(t, a.Admit(350, false, 0), "three quarters")
	require.False(t, a.Admit(1, false, 0))
	require.EqualValues(t, -125, a.Scarce())
	require.True(t, a.Admit(250, true, 0), "the last quarter")
	require.EqualValues(t, 125, a.Scarce())
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

// Who came first is first, however many bytes it takes. Small ones only do not wait for what large ones have together.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(1000)
		require.True(t, a.Admit(750, false, 0))
		var mu sync.Mutex
		var admitted []string
		ctx, cancel := context.WithCancel(t.Context())
		wait := func(ctx context.Context, name string, n int64, small bool) {
			go func() {
				if a.Wait(ctx, n, small) == nil {
					mu.Lock()
					defer mu.Unlock()
					admitted = append(admitted, name)
				}
			}()
			synctest.Wait()
		}
		wait(ctx, "given up", 300, true)
		wait(t.Context(), "large", 10, false)
		wait(t.Context(), "small", 200, true)
		require.True(t, a.IsWaited())
		require.Empty(t, admitted)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, a.Wait(ctx, 1, true), context.Canceled, "its time was up before")
		require.Equal(t, []string{"small"}, admitted)
		wait(t.Context(), "more", 100, true)
		a.Free(20, false)
		synctest.Wait()
		require.Equal(t, []string{"small", "large"}, admitted)
		wait(t.Context(), "less", 10, true)
		require.Len(t, admitted, 2, "less does not overtake more")
		a.Free(200, true)
		synctest.Wait()
		require.ElementsMatch(t, []string{"small", "large", "more", "less"}, admitted)
		wait(t.Context(), "room", 1000, true)
		a.Resize(2000)
		synctest.Wait()
		require.Len(t, admitted, 5)
		require.False(t, a.IsWaited())
	})
}

// Of few tokens one is for small requests.
func TestFewTokens(t *testing.T) {
	for tokens, large := range map[int64]int{1: 1, 2: 1, 3: 2, 5: 4, 10: 8} {
		a, n := New(tokens), 0
		for a.Admit(1, false, 0) {
			n++
		}
		require.Equal(t, large, n, tokens)
	}
}

// Many requests wait, are given up and free at once: nobody waits for what is free, and no byte is lost.
func TestWaitConcurrently(t *testing.T) {
	a := New(1000)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for k := range 1000 {
				ctx, cancel := context.WithCancel(t.Context())
				if k%3 == 0 {
					go cancel()
				}
				n, small := int64(50*i+k%7), i%2 == 0
				if k%10 == 0 {
					if a.Admit(n, small, 0) {
						a.Free(n, small)
					}
				} else if a.Wait(ctx, n, small) == nil {
					a.Free(n, small)
				}
				cancel()
			}
		})
	}
	all.Wait()
	require.Zero(t, a.Held()+a.large.Load())
	require.False(t, a.IsWaited())
}
