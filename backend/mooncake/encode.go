package mooncake

import (
	"encoding/binary"
	"math"
)

var le = binary.LittleEndian

// appendRequest appends the header of a request. endRequest completes it.
func appendRequest(dst []byte, seq, function uint32) []byte {
	dst = append(dst, magic, 0, 0, 0)
	dst = le.AppendUint32(dst, seq)
	dst = le.AppendUint32(dst, function)
	return append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
}

// endRequest puts the length of the body into the header at msg[0].
func endRequest(msg []byte) []byte {
	le.PutUint32(msg[12:], uint32(len(msg)-requestLen))
	return msg
}

// appendExist appends the body that asks for keys.
func appendExist(dst []byte, form Form, keys []string, tenant string) []byte {
	longest := len(keys)
	for _, key := range keys {
		longest = max(longest, len(key))
	}
	typ := typeKeys
	if form == FormTenant {
		typ, longest = typeKeysTenant, max(longest, len(tenant))
	}
	width := widthOf(longest)
	dst = appendHead(dst, typ, width)
	dst = appendLen(dst, width, len(keys))
	for _, key := range keys {
		dst = append(appendLen(dst, width, len(key)), key...)
	}
	if form == FormTenant {
		dst = append(appendLen(dst, width, len(tenant)), tenant...)
	}
	return dst
}

// appendRemoveAll appends the body that removes every key, leased ones too: as
// the reference does.
func appendRemoveAll(dst []byte, form Form, tenant string) []byte {
	const force = 1
	if form != FormTenant {
		return append(appendHead(dst, typeBool, 1), force)
	}
	width := widthOf(len(tenant))
	dst = append(appendHead(dst, typeBoolTenant, width), force)
	return append(appendLen(dst, width, len(tenant)), tenant...)
}

// widthOf returns the bytes of each count and length in a body whose greatest is n.
func widthOf(n int) int {
	switch {
	case n <= math.MaxUint8:
		return 1
	case n <= math.MaxUint16:
		return 2
	case n <= math.MaxUint32:
		return 4
	}
	return 8
}

// appendHead appends what comes before the value; counts of 1 byte need no meta.
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
