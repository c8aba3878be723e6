package events

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// maxDepth bounds arrays and maps in one another in a value of an event. Extra keys nest deepest: list, keys of a
// block, pair.
const maxDepth = 13

// First bytes of encoded values.
const (
	leadBin32  = 0xc6 // bytes, an extension and a string with a length of 32 bits
	leadExt32  = 0xc9
	leadStr32  = 0xdb
	leadUint8  = 0xcc
	leadUint32 = 0xce
	leadUint64 = 0xcf
	leadInt64  = 0xd3
)

var errDepth = errors.New("too many arrays or maps in one another")

// wrongType returns the error of a value that is not what is wanted.
func wrongType(b []byte, want string) error {
	if len(b) == 0 {
		return msgp.ErrShortBytes
	}
	return fmt.Errorf("%s, want %s", msgp.NextType(b), want)
}

// elements checks how many elements an array or a map claims. Each takes at least one byte of rest.
func elements(size uint32, rest []byte, err error) (int, []byte, error) {
	if err == nil && uint64(size) > uint64(len(rest)) {
		err = fmt.Errorf("%d elements in %d bytes", size, len(rest))
	}
	return int(size), rest, err
}

// checkLen refuses a length of 32 bits that exceeds b. msgp converts it to int, and panics where that has 32
// bits.
func checkLen(b []byte) error {
	if len(b) < 5 || b[0] != leadBin32 && b[0] != leadStr32 && b[0] != leadExt32 {
		return nil
	}
	if uint64(binary.BigEndian.Uint32(b[1:])) > uint64(len(b)) {
		return msgp.ErrShortBytes
	}
	return nil
}

// readString reads a string, borrowed from b.
func readString(b []byte) (s, rest []byte, err error) {
	if err := checkLen(b); err != nil {
		return nil, nil, err
	}
	return msgp.ReadStringZC(b)
}

// readBytes reads bytes, borrowed from b.
func readBytes(b []byte) (bin, rest []byte, err error) {
	if err := checkLen(b); err != nil {
		return nil, nil, err
	}
	return msgp.ReadBytesZC(b)
}

// readInt reads an integer from 0 to high of any size and sign; nil is none.
func readInt(b []byte, none, high int64) (int64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.NilType:
		return none, b[1:], nil
	case msgp.IntType, msgp.UintType:
	default:
		return 0, nil, wrongType(b, "an integer")
	}
	i, b, err := msgp.ReadInt64Bytes(b)
	if err == nil && (i < 0 || i > high) {
		err = fmt.Errorf("%d is not between 0 and %d", i, high)
	}
	return i, b, err
}

// readTime reads a number of seconds.
func readTime(b []byte) (float64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.Float32Type, msgp.Float64Type:
		return msgp.ReadFloat64Bytes(b)
	case msgp.IntType, msgp.UintType:
		i, rest, err := msgp.ReadInt64Bytes(b)
		return float64(i), rest, err
	}
	return 0, nil, wrongType(b, "a number")
}

// skip skips a value that has at most depth arrays and maps in one another.
func skip(b []byte, depth int) (rest []byte, err error) {
	n := 0
	switch msgp.NextType(b) {
	case msgp.ArrayType:
		n, b, err = elements(msgp.ReadArrayHeaderBytes(b))
	case msgp.MapType:
		n, b, err = elements(msgp.ReadMapHeaderBytes(b))
		n *= 2
	default:
		if err := checkLen(b); err != nil {
			return nil, err
		}
		return msgp.Skip(b)
	}
	if err == nil && depth == 0 {
		err = errDepth
	}
	for ; n > 0 && err == nil; n-- {
		// Most of a payload are token ids, of 8 to 32 bits.
		if len(b) >= 5 && b[0] >= leadUint8 && b[0] <= leadUint32 {
			b = b[1+1<<(b[0]-leadUint8):]
			continue
		}
		b, err = skip(b, depth-1)
	}
	return b, err
}
