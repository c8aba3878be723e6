package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// maxDepth bounds arrays and maps in one another. Extra keys nest deepest: batch, events,
// event, list, keys of a block, pair.
const maxDepth = 16

// First bytes of encoded values.
const (
	leadArray2 = 0x92 // array of two elements
	leadUint64 = 0xcf
	leadInt64  = 0xd3
	leadBin32  = 0xc6 // bytes, a string and an extension with a length of 32 bits
	leadStr32  = 0xdb
	leadExt32  = 0xc9
)

var errDepth = errors.New("too many arrays or maps in one another")

// wrongType returns the error of a value that is not what is wanted.
func wrongType(b []byte, want string) error {
	if len(b) == 0 {
		return msgp.ErrShortBytes
	}
	return fmt.Errorf("%s, want %s", msgp.NextType(b), want)
}

// readArrayHeader reads how many elements an array has. Each takes at least one byte, so more
// than the bytes left are refused here.
func readArrayHeader(b []byte) (n int, rest []byte, err error) {
	size, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err == nil && uint64(size) > uint64(len(rest)) {
		err = fmt.Errorf("%d elements in %d bytes", size, len(rest))
	}
	if err != nil {
		return 0, nil, err
	}
	return int(size), rest, nil
}

// readMapHeader reads how many pairs a map has, as readArrayHeader.
func readMapHeader(b []byte) (n int, rest []byte, err error) {
	size, rest, err := msgp.ReadMapHeaderBytes(b)
	if err == nil && 2*uint64(size) > uint64(len(rest)) {
		err = fmt.Errorf("%d pairs in %d bytes", size, len(rest))
	}
	if err != nil {
		return 0, nil, err
	}
	return int(size), rest, nil
}

// checkLen returns ErrShortBytes if b begins with a string, bytes or an extension whose length has
// 32 bits and exceeds b. msgp converts such a length to int: where that has 32 bits it panics.
func checkLen(b []byte) error {
	header := 5
	switch {
	case len(b) == 0:
		return nil
	case b[0] == leadExt32:
		header = 6
	case b[0] != leadBin32 && b[0] != leadStr32:
		return nil
	}
	if len(b) < header || uint64(binary.BigEndian.Uint32(b[1:])) > uint64(len(b)-header) {
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

// readInt reads an integer of any size and sign between low and high.
func readInt(b []byte, low, high int64) (int64, []byte, error) {
	if typ := msgp.NextType(b); typ != msgp.IntType && typ != msgp.UintType {
		return 0, nil, wrongType(b, "an integer")
	}
	i, b, err := msgp.ReadInt64Bytes(b)
	if err == nil && (i < low || i > high) {
		err = fmt.Errorf("%d is not between %d and %d", i, low, high)
	}
	return i, b, err
}

// readOptional is readInt for a value that may be nil, which is none.
func readOptional(b []byte, none, low, high int64) (int64, []byte, error) {
	if msgp.IsNil(b) {
		return none, b[1:], nil
	}
	return readInt(b, low, high)
}

// readTime reads a number of seconds.
func readTime(b []byte) (float64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.Float32Type, msgp.Float64Type:
		return msgp.ReadFloat64Bytes(b)
	}
	i, b, err := readInt(b, math.MinInt64, math.MaxInt64)
	return float64(i), b, err
}

// readList returns the bytes of an array, or none for nil.
func readList(b []byte) (list, rest []byte, err error) {
	if msgp.IsNil(b) {
		return nil, b[1:], nil
	}
	if msgp.NextType(b) != msgp.ArrayType {
		return nil, nil, wrongType(b, "an array")
	}
	rest, err = skip(b, maxDepth-3)
	if err != nil {
		return nil, nil, err
	}
	return b[: len(b)-len(rest) : len(b)-len(rest)], rest, nil
}

// skip skips a value that has at most depth arrays and maps in one another.
func skip(b []byte, depth int) ([]byte, error) {
	n := 0
	var err error
	switch msgp.NextType(b) {
	case msgp.ArrayType:
		n, b, err = readArrayHeader(b)
	case msgp.MapType:
		n, b, err = readMapHeader(b)
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
		b, err = skip(b, depth-1)
	}
	return b, err
}
