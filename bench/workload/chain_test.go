package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowChain is the definition of the chain, written down a second time.
func slowChain(root []byte, ids []uint64, perID int) []byte {
	var all []byte
	previous := root
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

func TestAppendChain(t *testing.T) {
	for _, ids := range [][]uint64{nil, {0}, {7}, {7, 7}, {3, 2, 1}, {1<<64 - 1, 1 << 40, 5}} {
		for _, perID := range []int{1, 2, 32, 512} {
			for _, conn := range []int{0, 1, 12} {
				root := make([]byte, 32)
				if conn > 0 {
					salt := sha256.Sum256(fmt.Appendf(nil, "hitline replay salt %d", conn))
					root = salt[:]
				}
				want := slowChain(root, ids, perID)
				got := AppendChain([]byte("kept"), ChainRoot(conn), ids, perID)
				require.Equal(t, "kept", string(got[:4]))
				require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(got[4:]), "ids %v, %d each, connection %d", ids, perID, conn)
			}
		}
	}
}

// The vectors come of Python's hashlib.
func TestAppendChainVector(t *testing.T) {
	got := AppendChain(nil, ChainRoot(0), []uint64{7, 1 << 40}, 2)
	assert.Equal(t, "3e9dc2c956a079cf4c6472b05bf67faced58cf1eab45b7579e9d9006308cc2be"+
		"6cc1fced47c5d66a18f0233b061aa73ded7df5220a8d11b0fa59edc441054bea"+
		"3eb169cdb81e1ad18215ef7c0a7d1f4a8fd8f0bcd73fff991fe327476bf62322"+
		"1d1446bcc1069b9edc146d1e14109b3cb6687d22a0ae0ab038e8d975ce3e3375", hex.EncodeToString(got))
	got = AppendChain(nil, ChainRoot(12), []uint64{7}, 1)
	assert.Equal(t, "1b1e593ce879123e6420b2c90660a349256590f20209fa21bf98fe48172b1f7b", hex.EncodeToString(got))
}

func TestAppendChainAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ids := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	buf := AppendChain(nil, ChainRoot(0), ids, 32)
	n := testing.AllocsPerRun(10, func() { buf = AppendChain(buf[:0], ChainRoot(0), ids, 32) })
	assert.Zero(t, n)
}

func BenchmarkAppendChain(b *testing.B) {
	ids := make([]uint64, 24)
	for _, perID := range []int{1, 32} {
		b.Run(fmt.Sprintf("ids=24/each=%d", perID), func(b *testing.B) {
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				buf = AppendChain(buf[:0], ChainRoot(0), ids, perID)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*24*perID), "ns/hash")
		})
	}
}
