package server

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// Shutdown before Start ends the server, and nothing starts any more.
func TestShutdownBeforeStart(t *testing.T) {
	server := unstarted(t)
	require.NoError(t, server.Shutdown(context.Background()))
	select {
	case <-server.Done():
	default:
		t.Fatal("it is not done")
	}
	require.NoError(t, server.Err())
	require.ErrorIs(t, server.Start(context.Background()), ErrServerClosed)
	require.Empty(t, server.Addrs(), "it listens nowhere")
	require.EqualError(t, server.Ready(), "not ready: stopped")
	require.NoError(t, server.Shutdown(context.Background()), "again")
}

func TestStartTwice(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	require.ErrorIs(t, server.Start(context.Background()), errStarted)
	pings(t, server.Addrs()[0])
	require.NoError(t, server.Shutdown(context.Background()))
	require.ErrorIs(t, server.Start(context.Background()), ErrServerClosed)
	require.NoError(t, server.Err())
}

// A Start that fails tells why, also as the reason for which the server has stopped.
func TestStartThatFailedIsDone(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	server := unstartedOn(t, "tcp://"+ln.Addr().String())
	require.ErrorContains(t, server.Start(context.Background()), "address already in use")
	<-server.Done()
	require.ErrorContains(t, server.Err(), "address already in use")
}

// A Start whose context ends meanwhile leaves nothing running, and Err says why.
func TestStartWhoseContextEnds(t *testing.T) {
	free := "tcp://" + storetest.FreeAddr(t)
	for range 200 {
		server := unstartedOn(t, free)
		ctx, cancel := context.WithCancel(context.Background())
		go cancel()
		if err := server.Start(ctx); err == nil {
			require.NoError(t, server.Shutdown(context.Background()))
			require.NoError(t, server.Err())
			continue
		}
		<-server.Done()
		require.ErrorIs(t, server.Err(), ErrStopped)
		require.ErrorIs(t, server.Err(), context.Canceled)
	}
}

// Start and Shutdown at the same time leave nothing running, whoever comes first.
func TestStartBesideShutdown(t *testing.T) {
	free := "tcp://" + storetest.FreeAddr(t) // nobody else comes to listen there
	for range 200 {
		server := unstartedOn(t, free)
		var both sync.WaitGroup
		var started error
		both.Go(func() { started = server.Start(context.Background()) })
		both.Go(func() { assert.NoError(t, server.Shutdown(context.Background())) })
		both.Wait()
		<-server.Done()
		require.NoError(t, server.Err())
		if started != nil {
			require.ErrorIs(t, started, ErrServerClosed)
		}
		for _, addr := range server.Addrs() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(addr, "tcp://"))
			if !assert.Error(t, err, "it still listens") {
				_ = conn.Close()
			}
		}
	}
}

// A Shutdown whose time is up while the server starts leaves it to Start to stop.
func TestShutdownGivesUpOnStart(t *testing.T) {
	server := unstarted(t)
	ctx, err := server.beginStart(context.Background()) // a Start that takes long
	require.NoError(t, err)
	late, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, server.Shutdown(late), context.Canceled)
	require.ErrorIs(t, ctx.Err(), context.Canceled, "and is told to end")
	require.ErrorIs(t, server.serve(ctx), context.Canceled, "so it listens nowhere")
}

// A Shutdown that has no time closes all at once, and stops a server that has started.
func TestShutdownWithoutTime(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 10 {
		server := startServer(t, blocks16, Limits{})
		require.NoError(t, server.Shutdown(ctx))
		<-server.Done()
	}
}
