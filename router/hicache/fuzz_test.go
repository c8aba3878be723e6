package hicache

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
)

// Whatever layout an engine tells, a store without its keys is a hit of 0, and one with all of them a hit of all pages.
func FuzzLayout(f *testing.F) {
	for _, reply := range []string{
		layoutOf(kv), layoutOf(kv + `, {"pool": "swa", "suffixes": ["__swa"], "hit_policy": "trailing_pages", "trailing_pages": 2}`),
		layoutOf(`{"pool": "m", "suffixes": [""], "hit_policy": "trailing_pages", "trailing_pages": 1}`), `{"enabled": true}`, `[]`,
	} {
		f.Add([]byte(reply), uint8(5))
	}
	f.Fuzz(func(t *testing.T, reply []byte, n uint8) {
		l, err := parseLayout(reply, 4)
		if err != nil {
			require.Less(t, len(err.Error()), 2000, "it is logged")
			return
		}
		pages := int(n)
		hashes := coordinator.NewHashes(make([]byte, 32*pages), 32)
		hit, err := l.peek(context.Background(), store{}, hashes, pages)
		require.NoError(t, err)
		require.Zero(t, hit)
		full := store{}
		for _, key := range l.keys(hashes, 0, pages).KeyList {
			full[key] = true
		}
		hit, err = l.peek(context.Background(), full, hashes, pages)
		require.NoError(t, err)
		require.Equal(t, pages, hit)
	})
}
