package workload

import (
	"crypto/sha256"
	"encoding/binary"
)

// HashLen is the length of a block hash in bytes: what vLLM's sha256 hashes have.
const HashLen = sha256.Size

// MaxHashes bounds the hashes of one request: as many as fit the 64 MiB that a
// message may have by default, so a hostile trace cannot make us allocate more.
const MaxHashes = 64 << 20 / HashLen

// AppendHashes appends the hashes of ids, HashLen bytes each and blockSize tokens
// a hash, and returns the extended slice. It allocates only to grow dst.
func AppendHashes(dst []byte, ids []uint64, blockSize int) []byte {
	var link [HashLen + 8 + 4]byte
	for _, id := range ids {
		binary.BigEndian.PutUint64(link[HashLen:], id)
		for sub := range BlockTokens / blockSize {
			binary.BigEndian.PutUint32(link[HashLen+8:], uint32(sub))
			hash := sha256.Sum256(link[:])
			dst = append(dst, hash[:]...)
			copy(link[:], hash[:])
		}
	}
	return dst
}
