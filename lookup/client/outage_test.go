package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// stoppable is a fake server that can be stopped, which ends its connections, and started again.
type stoppable struct {
	fakeServer
	mu     sync.Mutex
	closed bool
	conns  []net.Conn // of clients
}

var errStopped = errors.New("stopped")

// dialer returns one with the pauses of a client.
func (s *stoppable) dialer() *dialer {
	s.pipes = true
	d := s.fakeServer.dialer()
	real := newDialer()
	open := d.entries[0].open
	d.pause, d.pauses = real.pause, real.pauses
	s.refuse = func() error {
		if s.closed {
			return errStopped
		}
		return nil
	}
	d.entries[0].open = func(ctx context.Context) (net.Conn, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		nc, err := open(ctx)
		if err == nil {
			s.conns = append(s.conns, nc)
		}
		return nc, err
	}
	return d
}

// client returns a connected client, which ends with the test.
func (s *stoppable) client(t *testing.T, timeout time.Duration) *Client {
	t.Cleanup(s.all.Wait)
	c, err := dialClient(background, s.dialer(), newConfig([]Option{WithTimeout(timeout)}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *stoppable) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, nc := range s.conns {
		_ = nc.Close()
	}
	s.conns = nil
}

func (s *stoppable) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = false
}

// lookupOf makes one lookup in one of the two ways.
func lookupOf(c *Client, a *AsyncClient, async bool, id string) (int64, error) {
	if !async {
		hit, err := c.Lookup(background, 64, coordinator.NewHashes(nil, 0))
		return hit.Tokens, err
	}
	for {
		hit, ready, err := a.Poll(id, 64, coordinator.NewHashes(nil, 0))
		if ready {
			return hit.Tokens, err
		}
		time.Sleep(time.Millisecond)
	}
}

// A server that is stopped and started again while lookups go on answers all of them.
func TestStopAndStart(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprint("async ", async), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(stoppable)
				s.answer = func(r *fakeRequest) { // a round trip
					time.AfterFunc(time.Millisecond, r.reply)
				}
				c := s.client(t, 200*time.Millisecond)
				a := c.Async()
				var lookups sync.WaitGroup
				var asked atomic.Int64
				for i := range 400 {
					lookups.Go(func() {
						time.Sleep(time.Duration(i) * 2500 * time.Microsecond)
						hit, err := lookupOf(c, a, async, fmt.Sprint(i))
						if err != nil || hit != 64 {
							t.Error(i, hit, err)
						}
						asked.Add(1)
					})
				}
				for range 3 {
					time.Sleep(100*time.Millisecond + 300*time.Microsecond)
					s.stop()
					time.Sleep(150 * time.Millisecond)
					s.start()
				}
				lookups.Wait()
				require.EqualValues(t, 400, asked.Load())
			})
		})
	}
}

// A server that is away for good costs lookups that wait one deadline, once, and others nothing.
func TestAwayForGood(t *testing.T) {
	const timeout = 200 * time.Millisecond
	for name, test := range map[string]struct {
		async bool
		idle  time.Duration // from the end of the connection to the first lookup
		want  time.Duration // what the lookups cost in all
	}{
		"blocking, there lately":       {false, seenLately, timeout},
		"blocking, not there lately":   {false, seenLately + 1, 0},
		"asynchronous":                 {true, 0, timeout},
		"asynchronous, not there long": {true, time.Hour, timeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(stoppable)
				c := s.client(t, timeout)
				a := c.Async()
				s.stop()
				time.Sleep(test.idle)
				spent := time.Duration(0)
				dials := s.dials.Load()
				for i := range 1000 {
					begun := time.Now()
					hit, err := lookupOf(c, a, test.async, fmt.Sprint(i))
					require.ErrorIs(t, err, ErrConnect)
					require.ErrorContains(t, err, errStopped.Error())
					require.Zero(t, hit)
					spent += time.Since(begun)
					time.Sleep(10 * time.Millisecond)
				}
				require.Equal(t, test.want, spent)
				require.Less(t, s.dials.Load()-dials, int64(50), "in 10 s")
				s.start()
				time.Sleep(maxBackoff * 3 / 2)
				hit, err := lookupOf(c, a, test.async, "again")
				require.NoError(t, err)
				require.EqualValues(t, 64, hit)
			})
		})
	}
}

// While a call waits it dials every 10 ms, and ends at its own deadline. Others then no longer wait.
func TestDialsOfOneDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(stoppable)
		c := s.client(t, time.Second)
		s.stop()
		var calls sync.WaitGroup
		begun := time.Now()
		for i := range 10 {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				_, err := c.Lookup(background, 64, coordinator.NewHashes(nil, 0))
				if i > 0 && !errors.As(err, new(*BackoffError)) || i == 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error(i, err)
				}
			})
		}
		calls.Wait()
		require.Equal(t, time.Second, time.Since(begun))
		require.InDelta(t, 100, s.dials.Load()-1, 2)
	})
}

// What changes nothing is sent again once, on a connection whose setup was answered, and not after a refusal.
func TestSentAgain(t *testing.T) {
	for name, test := range map[string]struct {
		losses  int  // connections that are lost with the request on them
		refused bool // the reply before the loss is a refusal
		ask     func(c *Client) error
		want    int // how often the request is sent
		lost    bool
	}{
		"lookup":               {1, false, lookupAgain, 2, false},
		"lookup, lost twice":   {2, false, lookupAgain, 2, true},
		"lookup after refusal": {1, true, lookupAgain, 1, true},
		"stat":                 {1, false, func(c *Client) error { return ignore(c.Stat(background)) }, 2, false},
		"store": {1, false, func(c *Client) error {
			return c.Store(background, coordinator.GroupRank{}, someHashes)
		}, 1, true},
		"reset": {1, false, func(c *Client) error { return c.Reset(background) }, 1, true},
		"renew": {1, false, func(c *Client) error { return c.Renew(background, someHashes) }, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent, losses := 0, test.losses
				s := new(stoppable)
				s.answer = func(r *fakeRequest) {
					if r.tag == "ping" { // of the test
						r.conn.send(netproto.AppendRefusal(nil, r.envelope, netproto.StatusFailed, "no", nil))
						return
					}
					if sent++; losses > 0 {
						losses--
						r.conn.hangUp()
						return
					}
					if r.tag == "stat" {
						r.conn.send(netproto.AppendDone(nil, r.envelope, netproto.AppendFrame(nil, []byte("{}"), false)))
						return
					}
					r.reply()
				}
				c := s.client(t, defaultTimeout)
				if test.refused {
					require.ErrorIs(t, ping(c), ErrRefused)
				}
				err := test.ask(c)
				if test.lost {
					require.ErrorIs(t, err, ErrConnect)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, test.want, sent)
			})
		})
	}
}

func ignore(_ any, err error) error { return err }

func lookupAgain(c *Client) error {
	_, err := c.Lookup(background, 64, someHashes)
	return err
}
