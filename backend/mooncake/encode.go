package mooncake

import (
	"encoding/binary"
	"math"
)

var le = binary.LittleEndian

// appendRequest appends the header of a request. endRequest fills in the length of the body.
func appendRequest(dst []byte, seq, function uint32) []byte {
	dst = append(dst, magic, 0, 0, 0)
	dst = le.AppendUint32(dst, seq)
	dst = le.AppendUint32(dst, function)
	return append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
}

// endRequest writes the length of the body into the header, which begins at msg[0].
func endRequest(msg []byte) []byte {
	le.PutUint32(msg[12:], uint32(len(msg)-requestLen))
	return msg
}

// appendExist appends the body of a BatchExistKey request.
func appendExist(dst []byte, form Form, keys []string, tenant string) []byte {
	greatest := len(keys) // count or length in the body
	for _, key := range keys {
		greatest = max(greatest, len(key))
	}
	typ := typeKeys
	if form == FormTenant {
		typ, greatest = typeKeysTenant, max(greatest, len(tenant))
	}
	width := widthOf(greatest)
	dst = appendHead(dst, typ, width)
	dst = appendLen(dst, width, len(keys))
	dst = appendKeys(dst, width, keys)
	if form == FormTenant {
		dst = append(appendLen(dst, width, len(tenant)), tenant...)
	}
	return dst
}

// appendKeys appends keys, each after its length of width bytes. Widths 1 and 2 have loops of
// their own, which are faster.
func appendKeys(dst []byte, width int, keys []string) []byte {
	switch width {
	case 1:
		for _, key := range keys {
			dst = append(append(dst, byte(len(key))), key...)
		}
	case 2:
		for _, key := range keys {
			dst = append(append(dst, byte(len(key)), byte(len(key)>>8)), key...)
		}
	default:
		for _, key := range keys {
			dst = append(appendLen(dst, width, len(key)), key...)
		}
	}
	return dst
}

// appendRemoveAll appends the body of a RemoveAll request. It removes leased keys too, as the
// reference does.
func appendRemoveAll(dst []byte, form Form, tenant string) []byte {
	const force = 1
	if form != FormTenant {
		return append(appendHead(dst, typeBool, 1), force)
	}
	width := widthOf(len(tenant))
	dst = append(appendHead(dst, typeBoolTenant, width), force)
	return append(appendLen(dst, width, len(tenant)), tenant...)
}

// widthOf returns the bytes of each count and length in a body; n is the greatest of them.
func widthOf(n int) int {
	switch n := uint64(n); { // an int may have 32 bits
	case n <= math.MaxUint8:
		return 1
	case n <= math.MaxUint16:
		return 2
	case n <= math.MaxUint32:
		return 4
	}
	return 8
}

// appendHead appends the head of a body, and meta if counts are wider than 1 byte.
func appendHead(dst []byte, typ wireType, width int) []byte {
	if width == 1 {
		return le.AppendUint32(dst, typ.code)
	}
	dst = le.AppendUint32(dst, typ.code|hasMeta)
	switch width {
	case 2:
		return append(dst, 1<<widthShift)
	case 4:
		return append(dst, 2<<widthShift)
	}
	return append(dst, 3<<widthShift)
}

// appendLen appends a count or length of width bytes.
func appendLen(dst []byte, width, n int) []byte {
	switch width {
	case 1:
		return append(dst, byte(n))
	case 2:
		return le.AppendUint16(dst, uint16(n))
	case 4:
		return le.AppendUint32(dst, uint32(n))
	}
	return le.AppendUint64(dst, uint64(n))
}
