package address

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestForClient(t *testing.T) {
	for text, want := range map[string]string{
		"tcp://localhost:1": "tcp://localhost:1", "tcp://[fe80::1%eth0]:1": "tcp://[fe80::1%eth0]:1", "a:1": "a:1", "ipc:///x": "ipc:///x",
		"localhost": "localhost:7557", "127.0.0.1": "127.0.0.1:7557", "tls://a": "tls://a:7557", "[::1]": "[::1]:7557", "tcp://[::1]": "tcp://[::1]:7557",
	} {
		got, err := ForClient(text, "7557")
		require.NoError(t, err, text)
		assert.Equal(t, want, got)
	}
	for text, want := range map[string]string{
		"tcp://a:0": `"tcp://a:0" has port 0; give the port of the server, 1 to 65535`,
		"::1":       "too many colons", "a:": "is not a number", "a b": "is not a host name", "": "no host and port",
	} {
		_, err := ForClient(text, "7557")
		assert.ErrorContains(t, err, want, text)
	}
}

// Addresses of one socket are equal, however they are written.
func TestSocket(t *testing.T) {
	for _, same := range [][2]string{
		{"tcp://A:01", "a:1"}, {"tls://a:1", "tcp://a:1"}, {"tcp://[::1]:1", "tcp://[0::1]:1"}, {"ipc:///run/x", "ipc:///run/./x"},
	} {
		a, err := Parse(same[0])
		require.NoError(t, err)
		b, err := Parse(same[1])
		require.NoError(t, err)
		assert.Equal(t, a.Socket(), b.Socket(), same)
	}
}

// A secret is safe with TLS, over a unix socket and on loopback.
func TestPlainTextWarning(t *testing.T) {
	for _, safe := range []string{
		"tls://10.0.0.1:1", "https://10.0.0.1:1", "HTTPS://10.0.0.1", "ipc:///run/x", "tcp://127.0.0.1:1", "127.9.9.9:1", "localhost:1",
		"http://[::1]:1", "http://localhost", "http://LOCALHOST/", "http://[::1]", "tcp://[::ffff:127.0.0.1]:1", "rediss://a", "valkeys-cluster://a:1", "redis://[::1]", "unix:///x",
	} {
		assert.Empty(t, PlainTextWarning("token", safe), safe)
	}
	for text, secure := range map[string]string{
		"10.0.0.1:1": "tls://", "tcp://a:1": "tls://", "http://10.0.0.1:1": "https://", "HTTP://10.0.0.1:1/": "https://", "http://a": "https://",
		"http://localhost.a:1": "https://", "http://[fe80::1%eth0]:1": "https://", "redis://a": "rediss://", "valkey-cluster://10.0.0.1:1": "valkeys-cluster://",
	} {
		assert.Equal(t, "the token goes to "+text+" in plain text, for all on the way to read; use "+secure, PlainTextWarning("token", text))
	}
}
