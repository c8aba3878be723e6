package mooncake

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// A leader that is lost may still answer a question, that it does not serve: who asks
// in the pause before the next round finds the leader of that round all the same.
func TestLateAnswerInPause(t *testing.T) {
	f := startFake(t, storetest.FreeAddr(t), FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}})
	asks(t, c)
	held, release := make(chan struct{}), make(chan struct{})
	f.replies(func(q *request, _ []byte) {
		close(held)
		<-release
		q.write(response(0, q.seq, existBody([]int{storeNotServing}, false)))
	})
	late := make(chan error, 1)
	go func() {
		_, err := c.Exists(within(t, patience), []string{"here"})
		late <- err
	}()
	<-held
	require.NoError(t, f.listen.Close()) // no new connections
	c.suspect()
	eventually(t, "a long pause", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.round == nil && c.leader == "" && time.Until(c.next) > 200*time.Millisecond
	})
	close(release)
	require.Error(t, <-late)
	asked := make(chan error, 1)
	go func() {
		for { // in a pause there is no waiting, but soon a leader
			c.mu.Lock()
			found := c.leader != ""
			c.mu.Unlock()
			_, err := c.Exists(within(t, patience), []string{"here"})
			if err == nil || found {
				asked <- err
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	startFake(t, f.addr, FormTenant)
	require.NoError(t, <-asked)
}

// silentLog takes no line.
type silentLog struct {
	slog.Handler
	held, free chan struct{}
}

func (silentLog) Enabled(context.Context, slog.Level) bool { return true }

func (l silentLog) Handle(context.Context, slog.Record) error {
	close(l.held)
	<-l.free
	return nil
}

// A log that is stuck keeps no question waiting, with a leader or without.
func TestLogThatIsStuck(t *testing.T) {
	for name, well := range map[string]bool{"leader": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, "127.0.0.1:0", FormTenant)
			if !well {
				f.stop()
			}
			log := silentLog{slog.DiscardHandler, make(chan struct{}), make(chan struct{})}
			c := newClient(t, Config{Masters: []string{f.addr}, Logger: slog.New(log)})
			<-log.held
			asked := make(chan error, 1)
			go func() {
				_, err := c.Exists(within(t, patience), []string{"here"})
				asked <- err
			}()
			select {
			case err := <-asked:
				require.Equal(t, well, err == nil, "%v", err)
				close(log.free)
			case <-time.After(patience / 2):
				close(log.free)
				require.Fail(t, "the log keeps a question waiting")
			}
		})
	}
}
