//go:build linux

package crowd

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

// The wire of a master: see backend/mooncake, whose client leaves the literal out, and cuts calls of many keys.
// Mooncake's own client sends one request.
const (
	requestHead = 20 // bytes
	replyHead   = 16
	fnExist     = 0xb89fa6b0 // BatchExistKey
	typeExist   = 0x00f78d62 // of its body: keys and a tenant
	literal     = "\xfd\x84\x80\x0c\x80\x0c\xff\x00"
	tenant      = "default"
	maxMessage  = 256 << 20

	withMeta    = 1      // bit of the type
	withLiteral = 1 << 2 // bit of meta
	widthShift  = 3      // of the bits of meta that are 0, 1 and 2 for numbers of 1, 2 and 4 bytes
)

var le = binary.LittleEndian

// existRequest returns the request of Mooncake's own client for keys, which are each prefix with each hash, all
// prefixes of a hash together: the order of vLLM's lookup. hashes are joined.
func existRequest(seq uint32, prefixes []string, hashes []byte) []byte {
	keyLen := 0
	for _, p := range prefixes {
		keyLen = max(keyLen, len(p)+2*workload.HashLen)
	}
	keys := len(hashes) / workload.HashLen * len(prefixes)
	widthBits := 0
	for n := max(keys, keyLen); n >= 1<<(8<<widthBits); {
		widthBits++
	}
	width := 1 << widthBits
	b := make([]byte, requestHead, requestHead+32+keys*(width+keyLen)+len(tenant))
	b[0] = 0x15
	le.PutUint32(b[4:], seq)
	le.PutUint32(b[8:], fnExist)
	b = le.AppendUint32(b, typeExist|withMeta)
	b = append(append(b, byte(withLiteral|widthBits<<widthShift)), literal...)
	b = appendNumber(b, width, keys)
	for at := 0; at < len(hashes); at += workload.HashLen {
		for _, p := range prefixes {
			b = append(appendNumber(b, width, len(p)+2*workload.HashLen), p...)
			b = hex.AppendEncode(b, hashes[at:at+workload.HashLen])
		}
	}
	b = append(appendNumber(b, width, len(tenant)), tenant...)
	le.PutUint32(b[12:], uint32(len(b)-requestHead))
	return b
}

// appendNumber appends a number of width bytes.
func appendNumber(b []byte, width, n int) []byte {
	return append(b, le.AppendUint32(nil, uint32(n))[:width]...)
}

// existKeys returns how many keys a request is for, 0 if it is another one.
func existKeys(request []byte) int {
	body := request[requestHead:]
	if le.Uint32(request[8:]) != fnExist || len(body) < 4+1+len(literal)+4 {
		return 0
	}
	width, at := 1, 4
	if body[0]&withMeta != 0 {
		meta := body[4]
		width, at = 1<<(meta>>widthShift&3), 5
		if meta&withLiteral != 0 {
			at += len(literal)
		}
	}
	var n [8]byte
	copy(n[:width], body[at:])
	return int(le.Uint32(n[:]))
}

// readMessage reads a request or a reply, whose head has a number of bytes and ends with the lengths of what follows.
func readMessage(r io.Reader, headLen int) ([]byte, error) {
	message := make([]byte, headLen)
	if _, err := io.ReadFull(r, message); err != nil {
		return nil, err
	}
	size := uint64(le.Uint32(message[headLen-8:])) + uint64(le.Uint32(message[headLen-4:]))
	if size > maxMessage {
		return nil, fmt.Errorf("%w: a message of %d bytes", measure.ErrAnswer, size)
	}
	message = append(message, make([]byte, size)...)
	_, err := io.ReadFull(r, message[headLen:])
	return message, err
}

// answersOf returns the answers of a reply for keys, two bytes each, of which the second is 1 if there is the key. It
// returns nil if the reply has an error, be it of one key.
func answersOf(reply []byte, keys int) []byte {
	if reply[2] != 0 || len(reply) < replyHead+5+2*keys {
		return nil
	}
	answers := reply[len(reply)-2*keys:]
	for i := 0; i < len(answers); i += 2 {
		if answers[i] != 1 || answers[i+1] > 1 {
			return nil
		}
	}
	return answers
}

// countFound returns how many answers say that there is the key.
func countFound(answers []byte) (n int) {
	for i := 1; i < len(answers); i += 2 {
		n += int(answers[i])
	}
	return n
}

// leadingFound returns how many leading blocks there are, each with a number of keys.
func leadingFound(answers []byte, keysPerBlock int) int {
	for i := 1; i < len(answers); i += 2 {
		if answers[i] == 0 {
			return i / 2 / keysPerBlock
		}
	}
	return len(answers) / 2 / keysPerBlock
}
