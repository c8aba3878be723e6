package mooncake

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/storetest"
)

// TestLateReplyBetweenRounds has a leader that is dropped and then still replies that it does
// not serve. The reply must not disturb the rounds: the next one finds the leader.
func TestLateReplyBetweenRounds(t *testing.T) {
	f := startFake(t, storetest.FreeAddr(t), FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}})
	checkExists(t, c)
	held, release := make(chan struct{}), make(chan struct{})
	f.setReply(func(q *request, _ []byte) {
		close(held)
		<-release
		q.write(response(0, q.seq, existBody([]int{storeNotServing}, false)))
	})
	late := make(chan error, 1)
	go func() {
		_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
		late <- err
	}()
	<-held
	require.NoError(t, f.listener.Close()) // no new connections
	c.recheckLeader()
	eventually(t, "a long delay between rounds", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.round == nil && c.leader == "" && time.Until(c.nextRound) > 200*time.Millisecond
	})
	close(release)
	require.Error(t, <-late)
	result := make(chan error, 1)
	go func() {
		for { // between rounds Exists fails at once
			c.mu.Lock()
			found := c.leader != ""
			c.mu.Unlock()
			_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
			if err == nil || found {
				result <- err
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	startFake(t, f.addr, FormTenant)
	require.NoError(t, <-result)
}

// blockedHandler is a slog.Handler that blocks until free is closed.
type blockedHandler struct {
	slog.Handler
	held, free chan struct{} // held is closed when it blocks
}

func (blockedHandler) Enabled(context.Context, slog.Level) bool { return true }

func (l blockedHandler) Handle(context.Context, slog.Record) error {
	close(l.held)
	<-l.free
	return nil
}

// TestBlockedLogDelaysNoCall has a handler that blocks, with a leader and without.
func TestBlockedLogDelaysNoCall(t *testing.T) {
	for name, leads := range map[string]bool{"leader": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, "127.0.0.1:0", FormTenant)
			if !leads {
				f.stop()
			}
			log := blockedHandler{slog.DiscardHandler, make(chan struct{}), make(chan struct{})}
			c := newClient(t, Config{Masters: []string{f.addr}, Logger: slog.New(log)})
			<-log.held
			result := make(chan error, 1)
			go func() {
				_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
				result <- err
			}()
			select {
			case err := <-result:
				require.Equal(t, leads, err == nil, "%v", err)
				close(log.free)
			case <-time.After(testTimeout / 2):
				close(log.free)
				require.Fail(t, "the log delays a call")
			}
		})
	}
}
