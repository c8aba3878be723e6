package snapshot

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/hitline/hitline/index"
)

// A record is, with integers little-endian and uvarints as in encoding/binary:
//
//	kind u8 | flags u8 | hash length u8 | keys u16
//	number u32       if hasNumber
//	before [length]  if hasBefore
//	places           unless samePlaces: uvarint count, then for each its distance from the one before,
//	                 less 1; the first one from -1
//	keys             count times length
const (
	recordHeader = 5
	maxPlaces    = 1 << 16 // of an index, by its configuration: see lookup.NewService
	maxHashLen   = 64
)

// Flags of a record.
const (
	hasNumber  = 1 << iota
	hasBefore  // the key in front of the first is known
	isHot      // DumpRecord.Hot
	isSameUse  // DumpRecord.SameUse
	samePlaces // its places are those of the record before, in the same part
	allFlags   = 1<<iota - 1
)

// appendRecord appends a record. last are the places of the record before in the same part, nil if it is
// the first.
func appendRecord(b []byte, r *index.DumpRecord, last []int) []byte {
	var flags byte
	for _, f := range []struct {
		set  bool
		flag byte
	}{{r.Numbered, hasNumber}, {len(r.Before) > 0, hasBefore}, {r.Hot, isHot}, {r.SameUse, isSameUse}, {last != nil && slices.Equal(r.Places, last), samePlaces}} {
		if f.set {
			flags |= f.flag
		}
	}
	n := 0
	if r.HashLen > 0 {
		n = len(r.Keys) / r.HashLen
	}
	b = append(b, byte(r.Kind), flags, byte(r.HashLen), byte(n), byte(n>>8))
	if r.Numbered {
		b = binary.LittleEndian.AppendUint32(b, r.Number)
	}
	b = append(b, r.Before...)
	if flags&samePlaces == 0 {
		b = binary.AppendUvarint(b, uint64(len(r.Places)))
		next := 0
		for _, place := range r.Places {
			b = binary.AppendUvarint(b, uint64(place-next))
			next = place + 1
		}
	}
	return append(b, r.Keys...)
}

// errRecord says that the bytes of a record are none.
var errRecord = errors.New("the records cannot be read, although their checksum is right")

// parseRecord reads the record at the beginning of b into r and returns what follows. r.Places are those
// of the record before in the same part, and its memory is used again; its keys lie in b. The index checks
// what the record says.
func parseRecord(b []byte, r *index.DumpRecord, first bool) (rest []byte, err error) {
	if len(b) < recordHeader {
		return nil, errRecord
	}
	flags, hashLen, keys := b[1], int(b[2]), int(binary.LittleEndian.Uint16(b[3:]))
	places := r.Places
	*r = index.DumpRecord{
		Kind: index.DumpKind(b[0]), HashLen: hashLen,
		Numbered: flags&hasNumber != 0, Hot: flags&isHot != 0, SameUse: flags&isSameUse != 0,
	}
	b = b[recordHeader:]
	if flags&^allFlags != 0 || hashLen > maxHashLen || hashLen == 0 && keys > 0 || first && flags&samePlaces != 0 {
		return nil, errRecord
	}
	if r.Numbered {
		if len(b) < 4 {
			return nil, errRecord
		}
		r.Number, b = binary.LittleEndian.Uint32(b), b[4:]
	}
	if flags&hasBefore != 0 {
		if hashLen == 0 || len(b) < hashLen {
			return nil, errRecord
		}
		r.Before, b = b[:hashLen:hashLen], b[hashLen:]
	}
	if r.Places = places; flags&samePlaces == 0 {
		if r.Places, b, err = parsePlaces(b, places[:0]); err != nil {
			return nil, err
		}
	}
	if len(b) < keys*hashLen {
		return nil, errRecord
	}
	r.Keys = b[: keys*hashLen : keys*hashLen]
	return b[keys*hashLen:], nil
}

// parsePlaces appends the places at the beginning of b.
func parsePlaces(b []byte, places []int) (all []int, rest []byte, err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > maxPlaces {
		return nil, nil, errRecord
	}
	b = b[used:]
	next := 0
	for range n {
		distance, used := binary.Uvarint(b)
		if used <= 0 || distance >= uint64(maxPlaces-next) {
			return nil, nil, errRecord
		}
		place := next + int(distance)
		places, b, next = append(places, place), b[used:], place+1
	}
	return places, b, nil
}
