package main

import (
	"bufio"
	"io"
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// During drain_delay everything is served, and /readyz, ping and each reply of HTTP say that this will end.
func TestDrainDelay(t *testing.T) {
	cmd, reader, writer := startProgram(t, "log: {format: json}\ndrain_delay: 1h\nmetrics: 127.0.0.1:0\n")
	require.NoError(t, writer.Close())
	log := bufio.NewScanner(reader)
	ready := awaitReadyLine(t, log)
	get := func(path string) (status int, closes bool) {
		response, err := http.Get("http://" + ready.Metrics + path)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		return response.StatusCode, response.Close
	}
	ping := func() result { return hitline(t, "", "ping", "--json", "--connect", ready.Listen[0]) }
	status, closes := get("/readyz")
	assert.Equal(t, http.StatusOK, status)
	assert.False(t, closes)
	assert.NotContains(t, ping().stdout, "draining")

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.Contains(t, awaitLine(t, log, "stopping"), `"drain_delay":"1h0m0s"`)
	storetest.Eventually(t, "not ready", func() bool { status, _ := get("/readyz"); return status == http.StatusServiceUnavailable })
	status, closes = get("/metrics")
	assert.Equal(t, http.StatusOK, status)
	assert.True(t, closes)
	assert.Contains(t, ping().stdout, `"draining":true`, "a new connection")
}
