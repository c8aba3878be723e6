package workload

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

func TestProbe(t *testing.T) {
	lost := errors.New("lost")
	fine := func() error { return nil }
	probe := func(found, whole uint32) (Pool, error) {
		return Probe(fine, func(tokens uint32) (uint32, error) {
			if tokens == found {
				return whole, nil
			}
			return found, nil
		}, fine)
	}
	pool, err := probe(32, 32)
	require.NoError(t, err)
	assert.Equal(t, Pool{BlockSize: 16}, pool)
	assert.EqualValues(t, 64, pool.Answer(4, 4))
	pool, err = probe(1024, 512)
	require.NoError(t, err)
	assert.Equal(t, Pool{BlockSize: 512, LeavesLast: true}, pool)
	assert.Equal(t, []uint32{1536, 1536, 0}, []uint32{pool.Answer(4, 4), pool.Answer(4, 3), pool.Answer(1, 1)})
	for _, hits := range [][2]uint32{{0, 0}, {33, 33}, {32, 0}} {
		_, err := probe(hits[0], hits[1])
		require.ErrorIs(t, err, measure.ErrOptions)
		require.ErrorContains(t, err, "give one whose pool has one full-attention group")
	}
	_, err = Probe(func() error { return lost }, nil, nil)
	require.ErrorIs(t, err, lost)
	_, err = Probe(fine, func(uint32) (uint32, error) { return 0, lost }, nil)
	require.ErrorIs(t, err, lost)
}
