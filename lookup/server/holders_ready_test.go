package server

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/holders"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
)

// A server is not ready while its holders are loaded from a peer.
func TestReadyWithHolders(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	peer := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-answer
	}))
	t.Cleanup(peer.Close)
	s := holdersOf(t)
	started := make(chan error, 1)
	go func() { started <- s.Start(context.Background(), holders.StartConfig{Peers: []string{peer.URL}}) }()
	<-asked
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: lookuptest.Blocks16})
	require.NoError(t, err)
	server, err := New(service, Config{Listen: []string{net.JoinHostPort("127.0.0.1", "0")}, Holders: s})
	require.NoError(t, err)
	startTest(t, server)
	err = server.Ready()
	require.ErrorIs(t, err, ErrNotReady)
	require.ErrorIs(t, err, holders.ErrLoading)
	close(answer)
	require.NoError(t, <-started)
	require.NoError(t, server.Ready())
}
