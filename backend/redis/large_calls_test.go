package redis

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// TestLargeCallsLeaveConnections has large calls hang on all connections that they may use. A
// small call has one.
func TestLargeCallsLeaveConnections(t *testing.T) {
	for poolSize, want := range map[int]int64{2: 1, 3: 2, 8: 6} {
		s := startFaulty(t, "nothing")
		open, held := make(chan struct{}), new(atomic.Int64)
		addr := listen(t, func(conn net.Conn) {
			s.serve(&holdingConn{Conn: conn, held: held, open: open})
		})
		b := testBackend(t, Config{URL: "redis://" + addr, PoolSize: poolSize})
		keys := blocks("m", maxSmallKeys+1)
		var calls sync.WaitGroup
		for range 2 * poolSize {
			calls.Go(func() {
				_, err := b.Exists(testContext(t), keys)
				require.NoError(t, err)
			})
		}
		storetest.Eventually(t, "some are at the server", func() bool { return held.Load() == want })
		for range 3 {
			answers, err := b.Exists(testContext(t), keys[:3])
			require.NoError(t, err)
			require.Equal(t, []int{1, 1, 1}, answers)
		}
		require.Equal(t, want, held.Load(), "%d connections", poolSize)
		close(open)
		calls.Wait()
		require.Empty(t, b.large)
	}
}

// holdingConn is a server's connection that holds the first answer to a large command until
// open is closed.
type holdingConn struct {
	net.Conn
	held  *atomic.Int64
	open  chan struct{}
	isNow bool // a large command was answered
}

func (c *holdingConn) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), ":512") && !c.isNow {
		c.isNow = true
		c.held.Add(1)
		<-c.open
	}
	return c.Conn.Write(p)
}
