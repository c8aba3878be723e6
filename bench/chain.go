package bench

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

// hashLen is the length of a block hash in bytes: what vLLM's sha256 hashes have.
const hashLen = sha256.Size

// maxHashes bounds the hashes of one request: as many as fit the 64 MiB that a
// message may have by default, so a hostile trace cannot make us allocate more.
const maxHashes = 64 << 20 / hashLen

// chainRoot returns the hash before the first hash of connection conn.
func chainRoot(conn int) [hashLen]byte {
	if conn == 0 {
		return [hashLen]byte{}
	}
	return sha256.Sum256([]byte("hitline replay salt " + strconv.Itoa(conn)))
}

// AppendHashes appends the hashes of ids, 32 bytes each and hashBlockTokens tokens
// a hash, as connection 0 of a replay sends them, and returns the extended slice.
func AppendHashes(dst []byte, ids []uint64, hashBlockTokens int) []byte {
	return appendChain(dst, chainRoot(0), ids, BlockTokens/hashBlockTokens)
}

// appendChain appends the hashes of ids to dst, perID of them for each id, and
// returns the extended slice. It allocates only to grow dst.
func appendChain(dst []byte, root [hashLen]byte, ids []uint64, perID int) []byte {
	var link [hashLen + 8 + 4]byte
	copy(link[:], root[:])
	for _, id := range ids {
		binary.BigEndian.PutUint64(link[hashLen:], id)
		for sub := range perID {
			binary.BigEndian.PutUint32(link[hashLen+8:], uint32(sub))
			hash := sha256.Sum256(link[:])
			dst = append(dst, hash[:]...)
			copy(link[:], hash[:])
		}
	}
	return dst
}
