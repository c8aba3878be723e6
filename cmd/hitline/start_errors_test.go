package main

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// What may be otherwise a second later ends serve with 1, at which deploy/hitline.service starts it again, and not with 2.
func TestStartErrorsThatPass(t *testing.T) {
	bound, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer bound.Close()
	path := filepath.Join(t.TempDir(), "taken")
	socket, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer socket.Close()
	taken := bound.Addr().String()
	const model = "models: [{name: m, block_size: 16}]"
	source := func(endpoint string) string {
		return "router: {" + model + ", sources: [{instance_id: i, endpoint: \"" + endpoint + "\", bind: true}]}\n"
	}
	for name, text := range map[string]string{
		"listen":               "listen: [\"tcp://" + taken + "\"]\n",
		"unix socket":          "listen: [\"ipc://" + path + "\"]\n",
		"metrics":              "metrics: \"" + taken + "\"\n",
		"router":               "router: {listen: \"" + taken + "\", " + model + "}\n",
		"source":               source("tcp://" + taken),
		"unix source":          source("ipc://" + path),
		"address of nobody":    "listen: [\"tcp://192.0.2.1:0\"]\n",
		"host without address": "listen: [\"tcp://no.such.invalid:1\"]\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := configFile(t, text)
			args := []string{"serve", "--config", file}
			if name != "listen" && name != "unix socket" && name != "address of nobody" && name != "host without address" {
				args = append(args, "--listen", "127.0.0.1:0")
			}
			got := hitline(t, "", args...)
			assert.Equal(t, exitFailed, got.code, got.stderr)
			assert.Equal(t, exitDone, hitline(t, "", append(args, "--check")...).code, "the configuration is right")
		})
	}
	got := hitline(t, "", "events", "tcp://"+taken, "--bind")
	assert.Equal(t, exitFailed, got.code, got.stderr)
}

// What serve only connects to need not be there yet.
func TestStartWithoutOthers(t *testing.T) {
	free := storetest.FreeAddr(t)
	for name, text := range map[string]string{
		"redis":                    "pool: {model_name: m}\nbackend: {redis: {url: \"redis://" + free + "\"}}\n",
		"redis without address":    "pool: {model_name: m}\nbackend: {redis: {url: \"redis://no.such.invalid:1\"}}\n",
		"redis cluster":            "pool: {model_name: m}\nbackend: {redis: {url: \"redis-cluster://no.such.invalid:1\"}}\n",
		"mooncake":                 "pool: {model_name: m}\nbackend: {mooncake: {masters: [\"" + free + "\"]}}\n",
		"mooncake without address": "pool: {model_name: m}\nbackend: {mooncake: {masters: [\"no.such.invalid:1\"]}}\n",
		"peer":                     "router: {models: [{name: m, block_size: 16}], peers: [\"http://" + free + "\", \"http://no.such.invalid:1\"]}\n",
		"source": "router: {models: [{name: m, block_size: 16}], sources: [{instance_id: i, endpoint: \"tcp://" + free +
			"\"}, {instance_id: j, endpoint: \"tcp://no.such.invalid:1\"}]}\n",
	} {
		t.Run(name, func(t *testing.T) { startServe(t, text) })
	}
}
