package mooncake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A leader that is lost may still answer a question, that it does not serve: who asks
// in the pause before the next round finds the leader of that round all the same.
func TestLateAnswerInPause(t *testing.T) {
	f := startFake(t, "127.0.0.1:0", FormTenant)
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
			_, err := c.Exists(within(t, patience), []string{"here"})
			c.mu.Lock()
			found := c.leader != ""
			c.mu.Unlock()
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
