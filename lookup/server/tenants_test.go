package server

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
)

// modelPool is a pool of a model.
func modelPool(model string) coordinator.Pool {
	return coordinator.Pool{HashBlockSize: 16, ModelName: model}
}

// startTenants starts a server with the pools "", a, b and c, which accepts further ones. Tenants
// are "ab", "b", "own" and "none", which is bound to a pool that there is not.
func startTenants(t *testing.T, names ...string) *Server {
	t.Helper()
	own, err := memoryService(modelPool("own"))
	require.NoError(t, err)
	cfg := Config{AcceptPool: memoryService, MaxPools: 1, Loops: 2}
	for _, name := range names {
		service, err := memoryService(modelPool(name))
		require.NoError(t, err)
		cfg.Pools = append(cfg.Pools, ServedPool{Name: name, Service: service})
	}
	cfg.Listeners = []Listener{{Address: "tcp://127.0.0.1:0", Settings: settingsOf(t, access.All,
		tokenOf("ab", access.All, "missing", "a", "b", "a"), tokenOf("b", access.All, "b"), tokenOf("own", access.All, ""), tokenOf("none", access.All, "missing"))}}
	server, err := New(own, cfg)
	require.NoError(t, err)
	startTest(t, server)
	return server
}

// dialTenant connects with a token of startTenants.
func dialTenant(t *testing.T, server *Server, name string) *lookuptest.Peer {
	t.Helper()
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	auth(t, p, name)
	return p
}

// poolOf returns what stat tells a peer.
func poolOf(t *testing.T, p *lookuptest.Peer) (st api.Stat) {
	t.Helper()
	return poolIn(t, p.Ask(t, []byte("stat")))
}

// poolIn returns what the reply to a stat tells.
func poolIn(t *testing.T, reply [][]byte) (st api.Stat) {
	t.Helper()
	require.NoError(t, json.Unmarshal(reply[1], &st))
	return st
}

// A tenant begins with its first pool, has the others by name and description, and sees no other.
func TestTenantPools(t *testing.T) {
	server := startTenants(t, "a", "b", "c")
	p := dialTenant(t, server, "ab")
	st := poolOf(t, p)
	require.Equal(t, "a", st.Pool)
	require.EqualValues(t, 2, st.Pools)
	require.Equal(t, []string{"a", "b"}, st.PoolNames)
	require.Zero(t, st.Connections)
	require.NotZero(t, server.Stat().Connections)
	require.Equal(t, "01", fmt.Sprintf("%x", describe(t, p, []byte(`{"name":"b"}`))[0]))
	require.Equal(t, "b", poolOf(t, p).Pool)
	for _, d := range []any{modelPool("a"), map[string]any{"name": "a", "hash_block_size": 16, "model_name": "a"}} {
		require.Equal(t, "01", fmt.Sprintf("%x", describe(t, p, d)[0]))
		require.Equal(t, "a", poolOf(t, p).Pool)
		describe(t, p, []byte(`{"name":"b"}`))
	}
	differs := describe(t, p, map[string]any{"name": "b", "hash_block_size": 16, "model_name": "a"})
	require.Contains(t, string(differs[1]), `pool "b" that is configured: model_name is "b", described as "a"`)
	for _, name := range []string{"missing", "c", "nowhere"} { // one that it may use, one that there is, and neither
		require.Equal(t, errNotOfTenant.Error(), string(describe(t, p, map[string]string{"name": name})[1]))
	}
	own := dialTenant(t, server, "own")
	require.Empty(t, poolOf(t, own).Pool)
	require.Empty(t, poolOf(t, own).PoolNames)
	require.EqualValues(t, 1, poolOf(t, own).Pools)
	require.Equal(t, "01", fmt.Sprintf("%x", describe(t, own, modelPool("own"))[0]))

	none := dialTenant(t, server, "none")
	require.Zero(t, poolOf(t, none).Pools)
	reply := none.Ask(t, requestsOf(blocks16.Pool)[0]...)
	require.Equal(t, errNoPool.Error(), string(reply[1]))
}

// A tenant is told the same of a pool that it may not use and of one that there is not: its whole
// conversation is the same with a server that has the pool and one that has not.
func TestTenantCannotTell(t *testing.T) {
	var conversations [2][]string
	times := regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`) // of the second in which something was asked
	for i, names := range [][]string{{"a", "b", "c"}, {"b"}} {
		server := startTenants(t, names...)
		if i == 0 { // and there is a described one; no further one has a place
			busy := lookuptest.DialPeer(t, server.Addrs()[0])
			require.Equal(t, "01", fmt.Sprintf("%x", describe(t, busy, modelPool("described"))[0]))
		}
		p := dialTenant(t, server, "b")
		ask := func(frames ...[]byte) {
			reply := p.Ask(t, frames...)
			if string(frames[0]) == "stat" {
				var st api.Stat
				require.NoError(t, json.Unmarshal(reply[1], &st))
				st.Instance, st.StartTime = "", time.Time{}
				text, _ := json.Marshal(st)
				reply = [][]byte{text}
			}
			conversations[i] = append(conversations[i], times.ReplaceAllString(fmt.Sprintf("%q", reply), "TIME"))
		}
		for _, d := range []any{
			map[string]string{"name": "a"}, map[string]string{"name": "c"}, map[string]string{"name": "missing"}, modelPool("a"), modelPool("own"),
			modelPool("described"), modelPool("new"), map[string]any{"name": "a", "hash_block_size": 16, "model_name": "a"},
			map[string]any{"name": "a", "hash_block_size": 32, "model_name": "x"}, map[string]any{"name": "new", "hash_block_size": 16},
			map[string]any{"name": "b", "hash_block_size": 16, "model_name": "a"}, map[string]string{"name": "b"},
		} {
			text, err := json.Marshal(d)
			require.NoError(t, err)
			ask([]byte("pool"), text)
			ask(requestsOf(blocks16.Pool)[0]...)
			ask(requestsOf(blocks16.Pool)[1]...)
			ask([]byte("stat"))
		}
	}
	require.Equal(t, conversations[1], conversations[0])
	require.Contains(t, conversations[0][0], errNotOfTenant.Error())
}

// A connection whose pool is taken from its credential is closed: it would be answered about
// another one.
func TestTenantLosesPool(t *testing.T) {
	server := startTenants(t, "a", "b", "c")
	p, other := dialTenant(t, server, "b"), dialTenant(t, server, "ab")
	settings := settingsOf(t, access.All, tokenOf("b", access.All, "c"), tokenOf("ab", access.All, "b", "a"))
	require.NoError(t, server.SetListener(server.Addrs()[0], settings))
	p.ClosedWithin(t)
	require.Equal(t, "a", poolOf(t, other).Pool, "which it still may use")
	require.Equal(t, []string{"b", "a"}, poolOf(t, other).PoolNames)
	require.EqualValues(t, 1, server.Stat().Closed["credential_revoked"])
}

// A tenant whose auth request has failed does not keep its pool: anonymous peers may not have it.
func TestTenantLeavesPool(t *testing.T) {
	server := startTenants(t, "b")
	p := dialTenant(t, server, "b")
	require.Equal(t, "b", poolOf(t, p).Pool)
	require.NotNil(t, refusalIn(p.Ask(t, authFrames("nobody")...)))
	require.Empty(t, poolOf(t, p).Pool)
	reply := p.Ask(t, requestsOf(blocks16.Pool)[0]...)
	require.Equal(t, errNoPool.Error(), string(reply[1]))
	server.pools.mu.Lock()
	require.Zero(t, server.pools.byName["b"].connections)
	server.pools.mu.Unlock()
	auth(t, p, "b")
	require.Equal(t, "b", poolOf(t, p).Pool)
}
