package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSplitAddress(t *testing.T) {
	long := "/" + strings.Repeat("x", maxIPCPath-1)
	for addr, want := range map[string][2]string{
		"tcp://127.0.0.1:0":       {"tcp", "127.0.0.1:0"},
		"[::1]:7557":              {"tcp", "[::1]:7557"},
		"tls://[::1]:7557":        {"tls", "[::1]:7557"},
		"ipc:///run/hitline.sock": {"unix", "/run/hitline.sock"},
		"ipc://" + long:           {"unix", long},
	} {
		network, address, err := SplitAddress(addr)
		require.NoError(t, err, addr)
		require.Equal(t, want, [2]string{network, address})
	}
	for addr, want := range map[string]string{
		"":                    "has no host and port",
		"tcp://":              "has no host and port",
		"tls://":              "has no host and port",
		"/run/x":              "has no scheme; write ipc:///path",
		"tcp:/a:1":            "is no address; write tcp://host:port",
		"tcp//a:1":            "is no address; write tcp://host:port",
		"unix:///run/x":       `unknown scheme "unix"`,
		"ipc://":              "not the absolute path",
		"ipc://run/x":         "not the absolute path",
		"ipc:///run/":         "not the absolute path",
		"ipc://@hitline":      "not the absolute path",
		"ipc:///a\x00b":       "zero byte",
		"ipc://" + long + "x": "a path of 108 bytes; a unix socket's has at most 107",
	} {
		_, _, err := SplitAddress(addr)
		require.ErrorContains(t, err, want, addr)
	}
}
