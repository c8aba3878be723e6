package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowChain is the definition of the chain, written down a second time.
func slowChain(ids []uint64, perID int) []byte {
	var all []byte
	previous := make([]byte, 32)
	for _, id := range ids {
		for sub := range perID {
			h := sha256.New()
			h.Write(previous)
			for shift := 56; shift >= 0; shift -= 8 {
				h.Write([]byte{byte(id >> shift)})
			}
			h.Write([]byte{byte(sub >> 24), byte(sub >> 16), byte(sub >> 8), byte(sub)})
			previous = h.Sum(nil)
			all = append(all, previous...)
		}
	}
	return all
}

func TestAppendHashes(t *testing.T) {
	for _, ids := range [][]uint64{nil, {0}, {7}, {7, 7}, {3, 2, 1}, {1<<64 - 1, 1 << 40, 5}} {
		for _, perID := range []int{1, 2, 32, 512} {
			got := AppendHashes([]byte("kept"), ids, BlockTokens/perID)
			require.Equal(t, "kept", string(got[:4]))
			require.Equal(t, hex.EncodeToString(slowChain(ids, perID)), hex.EncodeToString(got[4:]), "ids %v, %d each", ids, perID)
		}
	}
	// The vector comes of Python's hashlib.
	assert.Equal(t, "3e9dc2c956a079cf4c6472b05bf67faced58cf1eab45b7579e9d9006308cc2be"+
		"6cc1fced47c5d66a18f0233b061aa73ded7df5220a8d11b0fa59edc441054bea"+
		"3eb169cdb81e1ad18215ef7c0a7d1f4a8fd8f0bcd73fff991fe327476bf62322"+
		"1d1446bcc1069b9edc146d1e14109b3cb6687d22a0ae0ab038e8d975ce3e3375", hex.EncodeToString(AppendHashes(nil, []uint64{7, 1 << 40}, 256)))
}
