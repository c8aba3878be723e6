package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Timeout bounds each wait for a store.
const Timeout = 20 * time.Second

// Eventually waits until condition holds, at most Timeout. what describes it.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Timeout); !condition(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "it takes too long until %s", what)
	}
}
