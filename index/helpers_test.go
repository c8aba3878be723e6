package index

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// storeAt stores keys at a place.
func storeAt(t testing.TB, x *Index, place int, keys []byte) {
	t.Helper()
	require.NoError(t, x.Store(&Writer{}, []int{place}, keys, 32))
}

// cut returns keys from to end-1 of keys of 32 bytes.
func cut(keys []byte, from, end int) []byte { return keys[from*32 : end*32] }
