package lookup

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/parallelbench"
)

// BenchmarkLookupParallel makes lookups in parallel, see package parallelbench.
func BenchmarkLookupParallel(b *testing.B) {
	cfg := blocks16
	cfg.Memory.MaxEntries = parallelbench.MaxEntries
	service, err := NewService(cfg)
	require.NoError(b, err)
	parallelbench.Run(b, parallelbench.Subject{
		Store: func(hashes []byte) error {
			return service.Store(context.Background(), coordinator.GroupRank{}, coordinator.NewHashes(hashes, 32))
		},
		NewLookup: func() func(hashes []byte) error {
			return func(hashes []byte) error {
				tokens := int64(len(hashes) / 32 * 16)
				hit, err := service.Lookup(context.Background(), tokens, coordinator.NewHashes(hashes, 32))
				if err != nil || hit.Tokens != tokens {
					return fmt.Errorf("%d of %d tokens hit: %w", hit.Tokens, tokens, err)
				}
				return nil
			}
		},
	})
}
