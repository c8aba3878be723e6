package client

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// listed is servers of a list. Each counts the lookups that it was asked, and the pools that it was told.
type listed []*listedServer

type listedServer struct {
	stoppable
	backend        string // in the reply to a pool
	refuses        atomic.Bool
	lookups, pools atomic.Int64
}

// newListed returns n servers over a store.
func newListed(n int) (l listed) {
	for range n {
		s := &listedServer{backend: "redis"}
		s.answer = func(r *fakeRequest) {
			switch {
			case r.tag == "pool" && s.refuses.Load():
				r.conn.send(append(append([]byte{}, r.envelope...), refusalOf(api.Refusal{Refusal: api.RefusalPoolDiffers})...))
			case r.tag == "pool":
				s.pools.Add(1)
				doc := fmt.Appendf(nil, `{"backend":%q}`, s.backend)
				r.conn.send(netproto.AppendDone(nil, r.envelope, netproto.AppendFrame(nil, doc, false)))
			default:
				if r.tag == "lookup" {
					s.lookups.Add(1)
				}
				time.AfterFunc(time.Millisecond, r.reply)
			}
		}
		l = append(l, s)
	}
	return l
}

// dial returns a client that begins with the first server.
func (l listed) dial(t *testing.T, timeout time.Duration) (*Client, error) {
	d := newDialer()
	d.description = []byte("{}")
	for i, s := range l {
		t.Cleanup(s.all.Wait)
		d.entries = append(d.entries, entry{fmt.Sprintf("tcp://server-%d:7557", i), s.dialer().entries[0].open})
	}
	c, err := dialClient(background, d, newConfig([]Option{WithTimeout(timeout)}))
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// ask makes a lookup every 10 ms and requires all to be answered. It returns how many each server was asked.
func (l listed) ask(t *testing.T, c *Client, during time.Duration) (asked []int64) {
	for _, s := range l {
		asked = append(asked, -s.lookups.Load())
	}
	for begun := time.Now(); time.Since(begun) < during; time.Sleep(10 * time.Millisecond) {
		hit, err := c.Lookup(background, 64, coordinator.NewHashes(nil, 0))
		require.NoError(t, err)
		require.EqualValues(t, 64, hit.Tokens)
	}
	for i, s := range l {
		asked[i] += s.lookups.Load()
	}
	return asked
}

// Clients of one pool begin with the same server, whatever names other pools have, and pools are spread.
func TestListIsSpread(t *testing.T) {
	choose := func(opts ...Option) int {
		d, err := newConfig(opts).dialer("a, b:1,ipc:///c")
		require.NoError(t, err)
		require.Equal(t, d.first, d.at)
		return d.first
	}
	require.Zero(t, choose())
	require.Zero(t, choose(WithPoolName("")))
	var begin [3]int
	for i := range 300 {
		name := fmt.Sprint("pool-", i)
		at := choose(WithPoolName(name))
		begin[at]++
		require.Equal(t, at, choose(WithPool(name, coordinator.Pool{HashBlockSize: 16}), WithClientInfo(map[string]any{"process": i})))
	}
	for _, n := range begin {
		require.InDelta(t, 100, n, 30)
	}
	// As the Python client: tests/test_list.py has these, too.
	require.Equal(t, []int{1, 0, 2}, []int{choose(WithPoolName("tiny")), choose(WithPoolName("pool-3")), choose(WithPoolName("pool-6"))})
	pool := coordinator.Pool{HashBlockSize: 16, ModelName: "m"}
	require.Equal(t, choose(WithPool("", pool)), choose(WithPool("", pool), WithClientInfo(map[string]any{"process": "one"})))
	_, err := newConfig(nil).dialer("a,,b")
	require.ErrorIs(t, err, ErrRequest)
}

// A client stays with a server, goes on to the next if it cannot be reached, and goes back after a minute. No lookup is
// lost by it, and each server is told the pool anew.
func TestListGoesOnAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListed(3)
		c, err := l.dial(t, 200*time.Millisecond)
		require.NoError(t, err)
		require.Equal(t, []int64{100, 0, 0}, rounded(l.ask(t, c, 1100*time.Millisecond)))
		l[0].stop()
		asked := l.ask(t, c, 30*time.Second)
		require.Zero(t, asked[0])
		require.Zero(t, asked[2])
		l[0].start()
		asked = l.ask(t, c, 29*time.Second)
		require.Zero(t, asked[0], "a minute is not over")
		asked = l.ask(t, c, 10*time.Second)
		require.NotZero(t, asked[0])
		asked = l.ask(t, c, time.Minute)
		require.Zero(t, asked[1]+asked[2], "it stays")
		require.EqualValues(t, 2, l[0].pools.Load())
		require.EqualValues(t, 1, l[1].pools.Load())
		require.EqualValues(t, 1, l[1].dials.Load())
	})
}

// rounded rounds down to hundreds.
func rounded(asked []int64) []int64 {
	for i := range asked {
		asked[i] -= asked[i] % 100
	}
	return asked
}

// While the first server is away it is dialed once a minute, and a server that refuses the pool is left.
func TestListWhoseFirstIsAway(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newListed(2)
			c, err := l.dial(t, 200*time.Millisecond)
			require.NoError(t, err)
			l[0].stop()
			l.ask(t, c, time.Second)
			if refuses {
				l[0].refuses.Store(true)
				l[0].start()
			}
			dials := l[0].dials.Load()
			asked := l.ask(t, c, 5*time.Minute)
			require.Zero(t, asked[0])
			require.InDelta(t, 5, l[0].dials.Load()-dials, 1)
		})
	}
}

// All servers of a list are dialed before a call fails, and before the pause.
func TestListThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListed(3)
		c, err := l.dial(t, 200*time.Millisecond)
		require.NoError(t, err)
		for _, s := range l {
			s.stop()
		}
		time.Sleep(seenLately + time.Second)
		_, err = c.Lookup(background, 64, coordinator.NewHashes(nil, 0))
		require.ErrorIs(t, err, errStopped)
		require.Equal(t, []int64{2, 1, 1}, []int64{l[0].dials.Load(), l[1].dials.Load(), l[2].dials.Load()})
		l[2].start()
		time.Sleep(time.Second)
		require.NotZero(t, l.ask(t, c, time.Second)[2])
	})
}

// A server of a list whose pool is in its memory is refused, and one address is not.
func TestListOfMemory(t *testing.T) {
	for _, n := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			l := newListed(n)
			l[0].backend = "memory"
			_, err := l.dial(t, 200*time.Millisecond)
			if n == 1 {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrRequest)
			require.ErrorContains(t, err, "tcp://server-0:7557 keeps its blocks in memory, so each server of the list has others; give one address")
		})
	}
}
