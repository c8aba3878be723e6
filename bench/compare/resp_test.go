//go:build linux

package compare

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

func TestLeadingOnes(t *testing.T) {
	for reply, want := range map[string]int{"": 0, ":1\r\n": 1, ":0\r\n": 0, ":1\r\n:1\r\n:0\r\n:1\r\n:0\r\n": 2, ":1\r\n:1\r\n": 2} {
		got, err := leadingOnes([]byte(reply))
		require.NoError(t, err)
		assert.Equal(t, want, got, reply)
	}
	for _, reply := range []string{":2\r\n", ":1\r", ":1\r\n:0\r\n-no\r\n"} {
		_, err := leadingOnes([]byte(reply))
		require.ErrorIs(t, err, measure.ErrAnswer, reply)
	}
}
