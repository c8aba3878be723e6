package snapshot

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/netproto"
)

// A record is, with integers little-endian and uvarints as in encoding/binary:
//
//	kind u8 | flags u8 | hash length u8 | keys u16
//	last use u64     of a DumpRun
//	places           unless samePlaces: uvarint count, then for each its distance from the one before,
//	                 less 1; the first one from -1
//	keys             count times length
const (
	recordHeader = 5
	maxPlaces    = 1 << 16 // group ranks of a pool, as lookup.NewService bounds them
	maxHashLen   = netproto.MaxHashLen
)

// Flags of a record.
const (
	samePlaces = 1 << iota // its places are those of the record before, in the same part
	allFlags   = 1<<iota - 1
)

const _ uint16 = index.MaxDumpKeys // fits the field keys

// numKeys returns how many keys a record has.
func numKeys(r *index.DumpRecord) int { return len(r.Keys) / max(r.HashLen, 1) }

// appendRecord appends a record. last are the places of the record before in the same part, nil if it is
// the first.
func appendRecord(b []byte, r *index.DumpRecord, last []int) []byte {
	var flags byte
	if last != nil && slices.Equal(r.Places, last) {
		flags = samePlaces
	}
	n := numKeys(r)
	b = append(b, byte(r.Kind), flags, byte(r.HashLen), byte(n), byte(n>>8))
	if r.Kind == index.DumpRun {
		b = binary.LittleEndian.AppendUint64(b, r.LastUse)
	}
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

// errRecord says that bytes are no record.
var errRecord = errors.New("a record that cannot be read, although the checksum is right")

// cursor takes bytes off the front of a part. It is bad once some were missing or wrong.
type cursor struct {
	b   []byte
	bad bool
}

// take returns the next n bytes, nil if there are fewer.
func (c *cursor) take(n int) []byte {
	if n > len(c.b) {
		c.bad = true
		return nil
	}
	taken := c.b[:n:n]
	c.b = c.b[n:]
	return taken
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// uvarint returns the next uvarint, which is to be below limit.
func (c *cursor) uvarint(limit int) int {
	n, used := binary.Uvarint(c.b)
	if used <= 0 || n >= uint64(limit) {
		c.bad = true
		return 0
	}
	c.b = c.b[used:]
	return int(n)
}

// record reads the next record into r. first says that it is the first of its part. Before the call r has
// the record before: its places may be those of the next one, and their memory is used again. The keys stay in
// the part. The index checks what the record says.
func (c *cursor) record(r *index.DumpRecord, first bool) error {
	header := c.take(recordHeader)
	if header == nil {
		return errRecord
	}
	flags, hashLen, keys := header[1], int(header[2]), int(binary.LittleEndian.Uint16(header[3:]))
	if flags&^allFlags != 0 || hashLen > maxHashLen || hashLen == 0 && keys > 0 ||
		first && flags&samePlaces != 0 {
		return errRecord
	}
	*r = index.DumpRecord{Kind: index.DumpKind(header[0]), HashLen: hashLen, Places: r.Places}
	if r.Kind == index.DumpRun {
		r.LastUse = c.u64()
	}
	if flags&samePlaces == 0 {
		r.Places = c.places(r.Places[:0])
	}
	if r.Keys = c.take(keys * hashLen); c.bad {
		return errRecord
	}
	return nil
}

// places appends the next places.
func (c *cursor) places(places []int) []int {
	next := 0
	for n := c.uvarint(maxPlaces + 1); n > 0 && !c.bad; n-- {
		place := next + c.uvarint(maxPlaces-next)
		places, next = append(places, place), place+1
	}
	return places
}
