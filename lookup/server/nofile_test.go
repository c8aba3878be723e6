package server

import (
	"crypto/tls"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCapConnections(t *testing.T) {
	for _, c := range []struct {
		most int
		open uint64
		want int
	}{
		{4096, 1 << 20, 4096},
		{4096, 5462, 4096},
		{4096, 4096, 3072},
		{4096, 1024, 768},
		{4096, 256, 192},
		{4096, 100, 36},
		{4096, 65, 1},
		{4096, 64, 1},
		{4096, 10, 1},
		{10, 1024, 10},
		{4096, 1<<64 - 1, 4096},
	} {
		require.Equal(t, c.want, capConnections(c.most, c.open, 1, 0), "%d of %d files", c.most, c.open)
	}
	require.Equal(t, 256, capConnections(4096, 1024, 3, 0))
	require.Equal(t, 1, capConnections(4096, 65, 3, 0))
	require.Equal(t, 128, capConnections(4096, 256, 1, 64))
	require.Equal(t, 768, capConnections(4096, 1024, 1, 192), "a quarter is enough for all")
	require.EqualValues(t, 1, descriptorsOf([]Listener{{Address: "tcp://[::1]:0"}}))
	require.EqualValues(t, 3, descriptorsOf([]Listener{{Address: "tcp://[::1]:0"}, {Settings: Settings{TLS: &tls.Config{}}}}))
	require.Positive(t, OpenFileLimit())
}
