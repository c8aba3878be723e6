package mooncake

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/storetest"
)

// newKnown returns a client that has found a key, and knows the master's lease.
func newKnown(t *testing.T, f *fakeMaster, cfg Config) *Client {
	cfg.Masters = []string{f.addr}
	c := newClient(t, cfg)
	eventually(t, "the lease is known", func() bool { checkExists(t, c); return c.Lease().Stated == 2*time.Second })
	return c
}

// cutIdle has the master close its connections, and waits until others are idle.
func cutIdle(t *testing.T, f *fakeMaster, c *Client) {
	before := f.accepted.Load()
	f.closeConns()
	eventually(t, "connections are dialled again", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return f.accepted.Load() >= before+int64(c.cfg.Conns) && len(c.idle) == c.cfg.Conns
	})
}

// A generation begins when keys may have gone, and at no other time.
func TestGeneration(t *testing.T) {
	giveUp := func(t *testing.T, f *fakeMaster, c *Client) {
		ctx, cancel := context.WithCancel(t.Context())
		f.setReply(func(*request, []byte) { cancel() })
		_, err := c.Exists(ctx, backend.KeyList{"here"}, false)
		require.ErrorIs(t, err, context.Canceled)
		f.resetReply()
	}
	late := func(t *testing.T, f *fakeMaster, c *Client) {
		f.setReply(func(*request, []byte) {})
		_, err := c.Exists(contextWithin(t, 10*time.Millisecond), backend.KeyList{"here"}, false)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		f.resetReply()
	}
	answers := func(do func(q *request, normal []byte)) func(t *testing.T, f *fakeMaster, c *Client) {
		return func(t *testing.T, f *fakeMaster, c *Client) {
			f.setReply(do)
			_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
			require.Error(t, err)
			f.resetReply()
		}
	}
	once := func(t *testing.T, f *fakeMaster, c *Client) {
		f.setReply(func(q *request, _ []byte) { f.resetReply(); q.Close() })
		_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"there"}, false)
		require.NoError(t, err)
	}
	present := func(keys map[string]int) func(t *testing.T, f *fakeMaster, c *Client) {
		return func(t *testing.T, f *fakeMaster, c *Client) {
			f.setPresent(keys)
			cutIdle(t, f, c)
		}
	}
	for name, tc := range map[string]struct {
		do     func(t *testing.T, f *fakeMaster, c *Client)
		begins bool
		view   uint64
	}{
		"a call is given up":              {do: giveUp},
		"a call is late":                  {do: late},
		"idle connections are closed":     {do: cutIdle},
		"... one of which a call takes":   {do: func(t *testing.T, f *fakeMaster, c *Client) { f.closeConns(); checkExists(t, c) }},
		"... by a process without keys":   {do: present(nil), begins: true},
		"... by one with other keys":      {do: present(map[string]int{"there": 1}), begins: true},
		"... with another view":           {do: func(t *testing.T, f *fakeMaster, c *Client) { f.setView(3); cutIdle(t, f, c) }, view: 2, begins: true},
		"... with the same view":          {do: cutIdle, view: 2},
		"... when the key's lease is old": {do: func(t *testing.T, f *fakeMaster, c *Client) { agePast(c, 3*time.Second/2); present(nil)(t, f, c) }},
		"... when it is not so old":       {do: func(t *testing.T, f *fakeMaster, c *Client) { agePast(c, time.Second); present(nil)(t, f, c) }, begins: true},
		"a call loses its connection":     {do: answers(func(q *request, _ []byte) { q.Close() }), begins: true},
		"... which may have ended before": {do: once},
		"... and the next is to another":  {do: func(t *testing.T, f *fakeMaster, c *Client) { f.setPresent(map[string]int{"there": 1}); once(t, f, c) }, begins: true},
		"a call gets half a reply":        {do: answers(func(q *request, normal []byte) { q.write(normal[:20]); q.Close() }), begins: true},
		"the store does not serve":        {do: answers(storeErrors(storeNotServing)), begins: true},
		"nothing listens any longer": {do: func(t *testing.T, f *fakeMaster, c *Client) {
			f.stop()
			eventually(t, "it is noticed", func() bool { return c.Failure() != nil })
		}, begins: true},
		"it closes new connections": {do: func(t *testing.T, f *fakeMaster, c *Client) {
			hangUp := func(q *request, _ []byte) { q.Close() }
			f.always.Store(&hangUp)
			f.closeConns()
			eventually(t, "it is noticed", func() bool { return c.Failure() != nil })
		}, begins: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFake(t, loopback, FormTenant)
			f.view = tc.view
			c := newKnown(t, f, Config{Conns: 2})
			eventually(t, "all connections are idle", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.idle) == 2 })
			before, lease := c.Generation(), c.Lease()
			tc.do(t, f, c)
			require.Equal(t, tc.begins, c.Generation() > before, "from %d to %d", before, c.Generation())
			if !tc.begins {
				require.Equal(t, lease, c.Lease())
				_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
				require.NoError(t, err)
				require.Equal(t, before, c.Generation())
			}
		})
	}
}

// agePast makes the key by which the process is known older.
func agePast(c *Client, age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process.foundAt = time.Now().Add(-age)
}

// A new connection asks for one key that was found, and for nothing if none was.
func TestIdentityQuestion(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}, Conns: 2})
	waitFilled(t, c)
	cutIdle(t, f, c)
	require.Zero(t, f.identified.Load())
	require.EqualValues(t, 1, f.pinged.Load(), "it has no view")
	eventually(t, "the lease is known", func() bool { checkExists(t, c); return c.Lease().Stated > 0 })
	require.Zero(t, f.identified.Load())
	cutIdle(t, f, c)
	require.EqualValues(t, 2, f.identified.Load(), "one each")
	require.EqualValues(t, 1, f.pinged.Load())
}

// After several late calls the lease is asked for again: it may be another process though its connections hang.
func TestLateCallsAskForTheLeaseAgain(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	c := newKnown(t, f, Config{Conns: 1})
	before := c.Generation()
	f.mu.Lock()
	f.lease = 500
	f.mu.Unlock()
	f.setReply(func(*request, []byte) {})
	for range maxTimeouts {
		_, err := c.Exists(contextWithin(t, 10*time.Millisecond), backend.KeyList{"here"}, false)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	f.resetReply()
	eventually(t, "the lease is known again", func() bool { checkExists(t, c); return c.Lease().Stated == 500*time.Millisecond })
	require.Equal(t, before, c.Generation())
}

// The end of a master is noticed when nobody asks, and so is the next one.
func TestFailure(t *testing.T) {
	f := startFake(t, storetest.FreeAddr(t), FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}})
	waitFilled(t, c)
	require.NoError(t, c.Failure())
	f.stop()
	eventually(t, "it is noticed", func() bool { return c.Failure() != nil })
	require.ErrorIs(t, c.Failure(), backend.ErrUnavailable)
	require.ErrorContains(t, c.Failure(), "mooncake: unavailable: no master answers: "+f.addr+": nothing listens there")
	startFake(t, f.addr, FormTenant)
	eventually(t, "the next one is", func() bool { return c.Failure() == nil })
	checkExists(t, c)
	require.NoError(t, c.Close())
	require.NoError(t, c.Failure())
}

// A reset that was sent ends with the master's answer, though its context has ended.
func TestResetGoesOn(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}, AllowReset: true})
	checkExists(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan struct{})
	f.setReply(func(q *request, normal []byte) { cancel(); <-answer; q.write(normal) })
	done := make(chan error)
	go func() { done <- c.Reset(ctx) }()
	<-ctx.Done()
	select {
	case err := <-done:
		require.Fail(t, "it has ended", "%v", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(answer)
	require.NoError(t, <-done)
	require.ErrorIs(t, c.Reset(ctx), context.Canceled, "it was not sent")

	f.setReply(func(q *request, _ []byte) { _, _ = io.Copy(io.Discard, q) })
	go func() { done <- c.Reset(context.Background()) }()
	eventually(t, "it was sent", func() bool { return f.resets.Load() == 2 })
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-done, net.ErrClosed)
}

// Replies of masters to Ping, as they were recorded: with high availability, and without.
func TestParseView(t *testing.T) {
	for reply, want := range map[string]uint64{
		"538f2a74 04 87fd0301ff0100 01 0200000000000000 02000000": 2,
		"538f2a74 04 87fd0301ff0100 01 0000000000000000 02000000": 0,
		"528f2a74 00 0efcffff":                       0,
		"528f2a74 01 0200000000000000":               0,
		"538f2a75 00 01 0200000000000000 02000000":   0,
		"528f2a74 01 0200000000000000 02000000 0000": 0,
	} {
		require.Equal(t, want, parseView(unhex(t, reply)), reply)
	}
}
