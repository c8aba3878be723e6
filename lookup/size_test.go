package lookup

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
)

// roomyStore is a store that has room for some keys.
type roomyStore struct{ lookuptest.KeyStore }

func (*roomyStore) MaxKeys(context.Context) (int64, error) { return 6000, nil }

// The size of a pool is known if the store or the operator tells it, and no other pool shares it.
func TestNumBlocks(t *testing.T) {
	full := coordinator.Pool{HashBlockSize: 16, TPSize: 2, NumKVHead: 2, Groups: []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: 32}}}
	for i, of := range []struct {
		cfg   ServiceConfig
		alone bool
		want  int64
	}{
		{ServiceConfig{Pool: full, Backend: &roomyStore{}}, true, 6000}, // two ranks, a key for two hashes
		{ServiceConfig{Pool: full, Backend: &roomyStore{}}, false, 0},
		{ServiceConfig{Pool: full, Backend: &roomyStore{}, Remote: RemoteConfig{NumBlocks: 77}}, true, 77},
		{ServiceConfig{Pool: full, Backend: &lookuptest.KeyStore{}}, true, 0},
		{ServiceConfig{Pool: renewedPool, Backend: &roomyStore{}}, true, 0}, // a window has not all keys
		{ServiceConfig{Pool: full, Memory: index.Config{MaxEntries: 500}}, false, 1000},
		{ServiceConfig{Pool: full}, true, 0},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s, err := NewService(of.cfg)
			require.NoError(t, err)
			got, err := s.NumBlocks(t.Context(), of.alone)
			require.NoError(t, err)
			require.Equal(t, of.want, got)
		})
	}
}
