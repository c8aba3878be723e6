package workload

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestChains(t *testing.T) {
	for _, test := range []struct {
		hashes, entries int
		bytes           int64
		want            int
	}{
		{131_072, 0, 64 << 20, 20},
		{8192, 0, 64 << 20, 260}, // 256 would only fill it
		{64, 1, 64 << 20, 32_770},
		{1, 1, 64 << 20, 2_097_160},
		{64, 1, 0, 20},
		{1, 101, 0, 110},
	} {
		got := Chains(test.hashes, test.entries, test.bytes)
		assert.Equal(t, test.want, got, "%+v", test)
		assert.Greater(t, int64(HashLen*test.hashes*got), test.bytes)
	}
}
