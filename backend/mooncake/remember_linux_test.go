package mooncake

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
)

// countingProxy forwards connections to a master. It counts the requests for keys.
type countingProxy struct {
	addr, target        string
	questions, accepted atomic.Int64
	running             sync.WaitGroup
}

func startProxy(t *testing.T, target string) *countingProxy {
	listener, err := net.Listen("tcp", loopback)
	require.NoError(t, err)
	p := &countingProxy{addr: listener.Addr().String(), target: target}
	p.running.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			p.accepted.Add(1)
			p.running.Go(func() { p.forward(c) })
		}
	})
	t.Cleanup(func() { listener.Close(); p.running.Wait() })
	return p
}

// forward forwards one connection until either end closes it.
func (p *countingProxy) forward(c net.Conn) {
	defer c.Close()
	m, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	replies := make(chan struct{})
	go func() {
		defer close(replies)
		_, _ = io.Copy(c, m)
		c.Close()
	}()
	for head := make([]byte, requestLen); ; {
		if _, err := io.ReadFull(c, head); err != nil {
			break
		}
		body := int64(le.Uint32(head[12:]))
		if le.Uint32(head[8:]) == fnBatchExistKey && body > 64 {
			p.questions.Add(1)
		}
		if _, err := m.Write(head); err != nil {
			break
		}
		if _, err := io.CopyN(m, c, body); err != nil {
			break
		}
	}
	m.Close()
	<-replies
}

// leases returns the values of --default_kv_lease_ttl to test, in milliseconds: more with
// HITLINE_TEST_MOONCAKE_LEASE=10000.
func leases() []int {
	ttls := []int{500, 2000}
	if ttl, err := strconv.Atoi(os.Getenv("HITLINE_TEST_MOONCAKE_LEASE")); err == nil {
		ttls = append(ttls, ttl)
	}
	return ttls
}

// TestRemembered has a service over a real master, which is started again with other leases.
func TestRemembered(t *testing.T) {
	w := storetest.RequireMooncake(t, storetest.MooncakeRelease)
	rpc := storetest.FreeAddr(t)
	r := remembered{T: t, proxy: startProxy(t, rpc), prompt: newPrompt(t, "remembered")}
	r.prompt.blob, r.prompt.tokens = r.prompt.blob[:32*len(r.prompt.keys)], r.prompt.wantHit // all of it: absent blocks are asked for
	var client *Client
	for _, ttl := range leases() {
		r.lease = time.Duration(ttl) * time.Millisecond
		m := storetest.StartMaster(t, w, rpc, fmt.Sprintf("--default_kv_lease_ttl=%d", ttl), "--eviction_high_watermark_ratio=0.1", "--client_ttl=30")
		r.node = storetest.StartNode(t, w, m)
		r.admin = newClient(t, Config{Masters: []string{rpc}, Admin: []string{m.Admin}})
		if client == nil {
			client = newClient(t, Config{Masters: []string{r.proxy.addr}, AllowReset: true})
			var err error
			r.service, err = lookup.NewService(lookup.ServiceConfig{Pool: r.prompt.pool, Backend: client, Remote: lookup.RemoteConfig{Timeout: testTimeout}})
			require.NoError(t, err)
		}
		r.put()
		eventually(t, "the lease is learnt", func() bool { r.look(); return client.Lease().Stated == r.lease })
		r.testKept()
		r.testForced()
		r.testReset()
		m.Kill()
		r.node.Kill()
	}
}

// remembered is a service over a proxy in front of a master.
type remembered struct {
	*testing.T
	proxy   *countingProxy
	prompt  prompt
	service *lookup.Service
	lease   time.Duration // the master's
	node    *storetest.Node
	admin   *Client // lists keys, which leases none
	fillers int     // blocks stored beside the prompt's
}

// blockSize is that of stored blocks: the master evicts from 200 of them on.
const blockSize = 128 << 10

// put stores the blocks of the prompt.
func (r *remembered) put() { r.node.PutSized(blockSize, r.prompt.keys...) }

// look returns the hit, and whether a question was asked for it.
func (r *remembered) look() (hit uint32, asked bool) {
	before := r.proxy.questions.Load()
	h, err := r.service.Lookup(context.Background(), int64(r.prompt.tokens), coordinator.NewHashes(r.prompt.blob, 32))
	require.NoError(r, err)
	return uint32(h.Tokens), r.proxy.questions.Load() > before
}

// fill stores blocks that nobody looks up, and returns their keys.
func (r *remembered) fill(n int) (keys []string) {
	for range n {
		r.fillers++
		keys = append(keys, fmt.Sprint("filler ", r.fillers))
	}
	r.node.PutSized(blockSize, keys...)
	return keys
}

// removeAll has another program remove all blocks, and waits until none is remembered.
func (r *remembered) removeAll() {
	r.node.RemoveAll()
	eventually(r.T, "none is remembered", func() bool { hit, _ := r.look(); return hit == 0 })
}

// testKept fills the store: blocks that were looked up stay until their lease ends, and others do not. An answer from
// memory is as good as the lease: all blocks are there.
func (r *remembered) testKept() {
	eventually(r.T, "others are evicted, and in the lease", func() bool {
		r.removeAll()
		others := r.fill(100)
		r.put()
		began := time.Now()
		if hit, _ := r.look(); hit != r.prompt.wantHit {
			return false // some are evicted already
		}
		for end := began.Add(r.lease); ; {
			r.fill(20)
			keys, _, err := r.admin.Keys(contextWithin(r, testTimeout), 1<<20)
			require.NoError(r, err)
			if time.Now().After(end) {
				return false // too slow
			}
			missing := func(key string) bool { return !slices.Contains(keys, key) }
			require.False(r, slices.ContainsFunc(r.prompt.keys, missing), "%v after they were looked up", time.Since(began))
			if slices.ContainsFunc(others, missing) {
				return true
			}
		}
	})
}

// testForced has another program remove all blocks: they are given for half of the lease at most, without a question.
func (r *remembered) testForced() {
	eventually(r.T, "an answer is from memory", func() bool {
		r.removeAll()
		r.put()
		hit, _ := r.look()
		answered := time.Now()
		require.Equal(r, r.prompt.wantHit, hit)
		r.node.RemoveAll()
		given := 0
		for {
			began := time.Now()
			hit, asked := r.look()
			if hit == 0 {
				require.True(r, asked)
				return given > 0
			}
			require.False(r, asked)
			require.Less(r, began.Sub(answered), r.lease/2)
			given++
		}
	})
}

// testReset has the service remove all blocks: the next answer is 0.
func (r *remembered) testReset() {
	r.put()
	hit, _ := r.look()
	require.Equal(r, r.prompt.wantHit, hit)
	require.NoError(r, r.service.Reset(contextWithin(r, testTimeout)))
	hit, asked := r.look()
	require.Zero(r, hit)
	require.True(r, asked)
}

// TestIdleConnectionsAreCut has a master that closes connections after a second. Nothing is forgotten, for longer with
// HITLINE_TEST_MOONCAKE_IDLE=10m. Then the master dies, which is noticed though nobody asks, and so is the next one.
func TestIdleConnectionsAreCut(t *testing.T) {
	w := storetest.RequireMooncake(t, storetest.MooncakeRelease)
	rpc := storetest.FreeAddr(t)
	r := remembered{T: t, proxy: startProxy(t, rpc), prompt: newPrompt(t, "idle"), lease: time.Minute}
	r.prompt.blob, r.prompt.tokens = r.prompt.blob[:32*len(r.prompt.keys)], r.prompt.wantHit
	start := func() *storetest.Master {
		m := storetest.StartMaster(t, w, rpc, fmt.Sprintf("--default_kv_lease_ttl=%d", r.lease.Milliseconds()), "--rpc_conn_timeout_seconds=1", "--client_ttl=600")
		r.node = storetest.StartNode(t, w, m)
		r.put()
		return m
	}
	m := start()
	client := newClient(t, Config{Masters: []string{rpc}})
	proxied := newClient(t, Config{Masters: []string{r.proxy.addr}})
	var err error
	r.service, err = lookup.NewService(lookup.ServiceConfig{Pool: r.prompt.pool, Backend: proxied, Remote: lookup.RemoteConfig{Timeout: testTimeout}})
	require.NoError(t, err)
	eventually(t, "the lease is learnt", func() bool { r.look(); return proxied.Lease().Stated == r.lease })
	generation, dials, rounds := proxied.Generation(), r.proxy.accepted.Load(), r.service.Stat().BackendRounds
	began := time.Now()
	for least, _ := time.ParseDuration(os.Getenv("HITLINE_TEST_MOONCAKE_IDLE")); time.Since(began) < least || r.proxy.accepted.Load() < dials+3*DefaultConns; {
		hit, _ := r.look()
		require.Equal(t, r.prompt.wantHit, hit)
		require.Equal(t, generation, proxied.Generation())
		require.Equal(t, r.lease, proxied.Lease().Stated)
		require.Less(t, time.Since(began), least+testTimeout)
		time.Sleep(100 * time.Millisecond)
	}
	asked := r.service.Stat().BackendRounds - rounds
	t.Logf("%d connections, and %d questions, in %v", r.proxy.accepted.Load()-dials, asked, time.Since(began).Round(time.Second))
	require.LessOrEqual(t, asked, 1+int64(time.Since(began)/(r.lease/2)))

	eventually(t, "all connections are idle", func() bool { client.mu.Lock(); defer client.mu.Unlock(); return len(client.idle) == DefaultConns })
	generation = client.Generation()
	began = time.Now()
	m.Kill()
	eventually(t, "it is noticed", func() bool { return client.Failure() != nil && client.Generation() > generation })
	t.Logf("noticed within %v", time.Since(began).Round(time.Millisecond))
	r.node.Kill()
	start()
	eventually(t, "the next one is", func() bool { return client.Failure() == nil })
}
