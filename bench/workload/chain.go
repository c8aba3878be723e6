package workload

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

// HashLen is the length of a block hash in bytes: what vLLM's sha256 hashes have.
const HashLen = sha256.Size

// MaxHashes bounds the hashes of one request: as many as fit the 64 MiB that a
// message may have by default, so a hostile trace cannot make us allocate more.
const MaxHashes = 64 << 20 / HashLen

// ChainRoot returns the hash before the first hash of connection conn.
func ChainRoot(conn int) [HashLen]byte {
	if conn == 0 {
		return [HashLen]byte{}
	}
	return sha256.Sum256([]byte("hitline replay salt " + strconv.Itoa(conn)))
}

// AppendHashes appends the hashes of ids, 32 bytes each and blockSize tokens
// a hash, as connection 0 of a replay sends them, and returns the extended slice.
func AppendHashes(dst []byte, ids []uint64, blockSize int) []byte {
	return AppendChain(dst, ChainRoot(0), ids, BlockTokens/blockSize)
}

// AppendChain appends the hashes of ids to dst, perID of them for each id, and
// returns the extended slice. It allocates only to grow dst.
func AppendChain(dst []byte, root [HashLen]byte, ids []uint64, perID int) []byte {
	var link [HashLen + 8 + 4]byte
	copy(link[:], root[:])
	for _, id := range ids {
		binary.BigEndian.PutUint64(link[HashLen:], id)
		for sub := range perID {
			binary.BigEndian.PutUint32(link[HashLen+8:], uint32(sub))
			hash := sha256.Sum256(link[:])
			dst = append(dst, hash[:]...)
			copy(link[:], hash[:])
		}
	}
	return dst
}
