package address

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	assert.NoError(t, Check("tcp://localhost:7557"))
	assert.NoError(t, Check("tcp://[fe80::1%eth0]:7557"))
	assert.EqualError(t, Check("tcp://a:0"), `"tcp://a:0" has port 0; give the port of the server, 1 to 65535`)
	assert.NoError(t, Check("a:1"))
	assert.NoError(t, Check("[::1]:1"))
	assert.ErrorContains(t, Check("a"), "missing port")
	assert.ErrorContains(t, Check("a:0"), "port 0")
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
