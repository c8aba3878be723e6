package server

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// What a client says of itself changes nothing of its pool, whatever else it says.
func TestClientOfAPool(t *testing.T) {
	own, err := memoryService(engine())
	require.NoError(t, err)
	described, err := json.Marshal(engine())
	require.NoError(t, err)
	for _, pool := range []string{string(described), `{"name":""}`} {
		server := startPools(t, own, Config{AcceptPool: memoryService})
		var want api.Pool
		for i, client := range []string{
			``, `"client":{},`, `"client":null,`, `"client":"of another version",`,
			`"client":{"process":"0b","a":null,"b":true,"c":1e99,"d":"","e":[[]],"f":{"g":{}}},`,
		} {
			p := lookuptest.DialPeer(t, server.Addrs()[0])
			frames := describe(t, p, []byte("{"+client+pool[1:]))
			require.Equal(t, []byte{netproto.StatusDone}, frames[0], "%s %s: %q", pool, client, frames)
			var got api.Pool
			require.NoError(t, json.Unmarshal(frames[1], &got))
			if i == 0 {
				want = got
			}
			require.Equal(t, want, got, client)
			p.Close()
		}
		require.Len(t, server.pools.byName, 1)
	}
	server := startPools(t, own, Config{})
	frames := describe(t, lookuptest.DialPeer(t, server.Addrs()[0]), []byte(fmt.Sprintf(`{"process":"0a",%s`, described[1:])))
	require.Equal(t, &api.Refusal{Refusal: api.RefusalBadRequest, Request: "pool"}, refusalIn(frames), "outside of client: %q", frames)
}

// The connection keeps who the client has said it is with its last pool.
func TestConnectionKeepsAsker(t *testing.T) {
	server := unstarted(t)
	ses := openSession(server, new(replies))
	for _, want := range []string{"0a", "0b", ""} {
		j := newJob(ses, netproto.TagPool)
		j.q.Description = fmt.Appendf(nil, `{"name":"","client":{"process":%q}}`, want)
		require.NoError(t, runPool(t.Context(), j))
		require.NoError(t, applyPool(ses, j))
		require.Equal(t, want, ses.asks.asker)
	}
}
