package cpushare

import (
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// acquireInOrder has claims wait one after the other, and returns a channel with their indexes as they acquire. Each
// releases at once.
func acquireInOrder(claims ...*Claim) <-chan int {
	got := make(chan int, len(claims))
	for i, c := range claims {
		go func() {
			if c.Acquire() {
				got <- i
				c.Release()
			}
		}()
		synctest.Wait()
	}
	return got
}

func drain(got <-chan int) (all []int) {
	synctest.Wait()
	for len(got) > 0 {
		all = append(all, <-got)
	}
	return all
}

// Keys take turns, whatever the number of their claims. The claims of one key are served in order.
func TestKeysTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		busy := s.NewClaim(Key{})
		require.True(t, busy.Acquire())
		crowd, one, other := Key{Listener: "crowd"}, Key{Listener: "one"}, Key{Credential: "other"}
		got := acquireInOrder(s.NewClaim(crowd), s.NewClaim(crowd), s.NewClaim(crowd), s.NewClaim(one), s.NewClaim(one), s.NewClaim(other))
		assert.Empty(t, drain(got))
		busy.Release()
		assert.Equal(t, []int{0, 3, 5, 1, 4, 2}, drain(got))
		assert.Equal(t, 1, s.free)
		assert.Empty(t, s.queues)
		assert.Zero(t, s.turns.Len())
	})
}

// Yield changes nothing while nobody waits, or before the turn is over. Then it goes to the end of the line.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		busy := s.NewClaim(Key{})
		require.True(t, busy.Yield(), "which acquires, too")
		require.True(t, busy.Yield())
		require.True(t, busy.held)
		got := acquireInOrder(s.NewClaim(Key{}), s.NewClaim(Key{}))
		time.Sleep(100*time.Microsecond - 1)
		require.True(t, busy.Yield())
		assert.Empty(t, drain(got))
		time.Sleep(time.Nanosecond)
		require.True(t, busy.Yield())
		assert.Equal(t, []int{0, 1}, drain(got))
		assert.True(t, busy.held)
	})
}

// Between Block and Unblock a claim holds nothing, and nobody acquires for it.
func TestBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		c, other := s.NewClaim(Key{}), s.NewClaim(Key{})
		require.True(t, c.Acquire())
		c.block()
		c.block()
		c.unblock()
		require.True(t, c.Acquire())
		assert.Equal(t, 1, s.free)

		require.True(t, other.Acquire())
		unblocked := make(chan bool)
		c.unblock()
		go func() { unblocked <- c.Acquire() }()
		synctest.Wait()
		reader := make(chan bool)
		go func() { reader <- c.Acquire() }()
		synctest.Wait()
		c.block() // ends the waits of others
		require.True(t, <-reader)
		require.True(t, <-unblocked)
		other.Release()
		assert.Equal(t, 1, s.free)
		c.unblock()
		require.True(t, c.Acquire())
		assert.Zero(t, s.free)
	})
}

// A closed claim holds nothing and waits no longer. One that waits for too long is closed.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		busy, waits, late := s.NewClaim(Key{}), s.NewClaim(Key{Listener: "a"}), s.NewClaim(Key{Listener: "b"})
		require.True(t, busy.Acquire())
		results := make(chan bool, 2)
		go func() { results <- waits.Acquire() }()
		synctest.Wait()
		waits.Close()
		require.False(t, <-results)
		began := time.Now()
		go func() { results <- late.Acquire() }()
		require.False(t, <-results)
		assert.Equal(t, 10*time.Second, time.Since(began))
		assert.False(t, late.Acquire())
		busy.Close()
		busy.Close()
		assert.False(t, busy.Acquire())
		assert.Equal(t, 1, s.free)
		assert.Empty(t, s.queues)
	})
}

func TestHalf(t *testing.T) {
	for processors, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 16: 8} {
		before := runtime.GOMAXPROCS(processors)
		assert.Equal(t, want, Half().free, processors)
		runtime.GOMAXPROCS(before)
	}
}

// A site has 64 bits of an IPv6 address to choose from.
func TestKeyOf(t *testing.T) {
	key := func(address string) Key {
		tcp, err := net.ResolveTCPAddr("tcp", address)
		require.NoError(t, err)
		return KeyOf("listen", tcp)
	}
	assert.Equal(t, key("192.0.2.1:1"), key("[::ffff:192.0.2.1]:2"))
	assert.NotEqual(t, key("192.0.2.1:1"), key("192.0.2.2:1"))
	assert.Equal(t, key("[2001:db8::1]:1"), key("[2001:db8::ffff:0:0:1]:1"))
	assert.NotEqual(t, key("[2001:db8::1]:1"), key("[2001:db8:0:1::1]:1"))
	assert.Equal(t, key("[fe80::1%1]:1"), key("[fe80::1%2]:1"))
	assert.Equal(t, Key{Listener: "listen"}, KeyOf("listen", &net.UnixAddr{}))
}
