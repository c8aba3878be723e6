package server

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
)

// A refused lookup behind a store on the same connection was not done in part: the store was.
func TestRefusedLookupAfterAStore(t *testing.T) {
	cfg := blocks16
	cfg.Pool.HashLen = 32
	server := startServer(t, cfg, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	chain := lookuptest.Chain("a", 4, 32)
	require.Equal(t, [][]byte{{1}}, p.Ask(t, []byte("store"), make([]byte, 8), []byte{0, 32}, chain))
	reply := p.Ask(t, []byte("lookup"), []byte{0, 0, 0, 128}, []byte{0, 16}, chain)
	require.Equal(t, []byte{0}, reply[0])
	var refusal api.Refusal
	require.NoError(t, json.Unmarshal(reply[2], &refusal))
	require.Equal(t, api.RefusalBadRequest, refusal.Refusal, "%s", reply[1])
}
