package mooncake

import (
	"encoding/binary"
	"math"

	"github.com/hitline/hitline/backend"
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

// probePolicy leases nothing: policy 0, seven bytes of padding, and a number that only other policies use.
const probePolicy = "\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"

// appendExist appends the body of a BatchExistKey or BatchProbeKey request for keys [from, to), or as many of them as
// fit into maxRequestBytes: at least one. It returns the end of those.
func appendExist(dst []byte, form Form, keys backend.Keys, from, to int, tenant string) (body []byte, end int) {
	typ, policy, greatest := typeKeysTenant, "", max(to-from, len(tenant)) // greatest is a count or length in the body
	switch form {
	case FormKeys:
		typ, greatest = typeKeys, to-from
	case formProbe:
		typ, policy = typeProbe, probePolicy
	}
	for start := len(dst); ; {
		width := widthOf(greatest)
		dst = append(appendHead(dst[:start], typ, width), policy...)
		count := len(dst)
		dst = appendLen(dst, width, 0)
		if dst, end, greatest = appendKeys(dst, width, keys, from, to); widthOf(greatest) > width {
			continue // a key is longer than the width allows
		}
		putLen(dst[count:], width, end-from)
		if form != FormKeys {
			dst = append(appendLen(dst, width, len(tenant)), tenant...)
		}
		return dst, end
	}
}

// appendKeys appends keys [from, to), each after its length of width bytes, until a request is full.
// It returns the end of those, and their greatest length. If that takes more than width bytes, it
// has appended only keys up to this one.
func appendKeys(dst []byte, width int, keys backend.Keys, from, to int) (body []byte, end, longest int) {
	start := len(dst)
	for i := from; i < to; i++ {
		at := len(dst)
		dst = keys.Append(appendLen(dst, width, 0), i)
		n := len(dst) - at - width
		if i > from && len(dst)-start > maxRequestBytes {
			return dst[:at], i, longest
		}
		if longest = max(longest, n); widthOf(longest) > width {
			return dst, i, longest
		}
		putLen(dst[at:], width, n)
	}
	return dst, to, longest
}

// appendPing appends the body of a Ping request, of a client that no engine has. A master takes it for one that
// has not registered, and logs that it is gone some seconds later.
func appendPing(dst []byte) []byte {
	return append(le.AppendUint32(dst, typeClient.code), make([]byte, 16)...)
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
	dst = append(dst, make([]byte, width)...)
	putLen(dst[len(dst)-width:], width, n)
	return dst
}

// putLen writes a count or length into the first width bytes of dst.
func putLen(dst []byte, width, n int) {
	switch width {
	case 1:
		dst[0] = byte(n)
	case 2:
		le.PutUint16(dst, uint16(n))
	case 4:
		le.PutUint32(dst, uint32(n))
	default:
		le.PutUint64(dst, uint64(n))
	}
}
