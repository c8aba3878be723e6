// Package parts is the encoding of what hitline sends as a whole: dumps of a router.
// Content is a sequence of values in sections. It is written in parts with checksums, so that a Reader finds damage
// before it uses what it reads.
//
//	stream  header | part...
//	header  magic [8] | format u32 | id [16] | checksum u32
//	part    flags u32 | length u32 | number u32 | checksum u32 | content [length]
//
// Integers are little-endian. A checksum is CRC-32C: of the header, what comes before it; of a part, the id, the flags,
// length and number, and the content. So a part of another stream does not fit. Parts are numbered from 0: one that is
// missing, repeated or in another place is found. No value is split between two parts. One flag begins a section, another
// marks the last part.
package parts

import "hash/crc32"

const (
	magicLen   = 8
	idLen      = 16
	headerLen  = magicLen + 4 + idLen + 4
	partHeader = 16
	sumAt      = 12 // of the checksum in the header of a part
	// fullPart is the length at which a part is written. Writing it to the cache of the system takes about 20 microseconds.
	fullPart = 64 << 10
)

// MaxPart bounds the content of a part in bytes, and so one value: a Reader allocates no more before it has checked it.
const MaxPart = 1 << 20

// Flags of a part.
const (
	beginsSection = 1 << iota
	isLast
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(seed uint32, pieces ...[]byte) uint32 {
	for _, b := range pieces {
		seed = crc32.Update(seed, castagnoli, b)
	}
	return seed
}
