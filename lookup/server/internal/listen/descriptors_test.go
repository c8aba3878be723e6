package listen

import (
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
		require.Equal(t, c.want, CapConnections(c.most, c.open, 1, 0), "%d of %d files", c.most, c.open)
	}
	require.Equal(t, 256, CapConnections(4096, 1024, 3, 0))
	require.Equal(t, 1, CapConnections(4096, 65, 3, 0))
	require.Equal(t, 128, CapConnections(4096, 256, 1, 64))
	require.Equal(t, 768, CapConnections(4096, 1024, 1, 192), "a quarter is enough for all")
	require.Positive(t, OpenFileLimit())
}
