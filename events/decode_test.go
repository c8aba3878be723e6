package events

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// unhex returns the bytes of a payload.
func unhex(t testing.TB, text string) []byte {
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	return b
}

func TestDecodeSample(t *testing.T) {
	payload := unhex(t, "93cb3ff80000000000009198ab426c6f636b53746f72656491cfdab89baa7b5857c0c0940102030404c0a3475055c000")
	var d Decoder
	batch, err := d.Decode(payload, func(e *Event) error {
		require.Equal(t, KindStored, e.Kind)
		require.Equal(t, "dab89baa7b5857c0", hex.EncodeToString(e.Hashes.Bytes()))
		require.Equal(t, "GPU", e.Tier.Medium)
		require.EqualValues(t, 4, e.BlockSize)
		require.Equal(t, NoGroup, e.Group)
		ids, err := e.TokenIDs(nil)
		require.NoError(t, err)
		require.Equal(t, []uint32{1, 2, 3, 4}, ids)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, Batch{Time: 1.5, Rank: 0}, batch)
}
