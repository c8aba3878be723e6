package wire

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

// RedisSet is the name of the set of all hashes.
const RedisSet = "blocks"

// What follows is RESP 2, the protocol of Redis and Valkey, as far as lookups need it.

// appendRESP appends the header of a command of the given number of words.
func appendRESP(b []byte, words int) []byte {
	return append(strconv.AppendInt(append(b, '*'), int64(words), 10), "\r\n"...)
}

// appendWord appends a word of a command.
func appendWord(b []byte, word []byte) []byte {
	b = append(strconv.AppendInt(append(b, '$'), int64(len(word)), 10), "\r\n"...)
	return append(append(b, word...), "\r\n"...)
}

// wordHead is the length of what goes before a hash that is a word.
const wordHead = len("$32\r\n")

// MemberTemplate returns one SMISMEMBER for the given number of hashes, and where they are.
func MemberTemplate(hashes int) (template []byte, first, stride int) {
	b := appendRESP(nil, 2+hashes)
	b = appendWord(appendWord(b, []byte("SMISMEMBER")), []byte(RedisSet))
	first = len(b) + wordHead
	word := appendWord(nil, make([]byte, workload.HashLen))
	return append(b, bytes.Repeat(word, hashes)...), first, len(word)
}

// ExistsTemplate returns an EXISTS for each of the given number of hashes, and where they are.
func ExistsTemplate(hashes int) (template []byte, first, stride int) {
	before := appendWord(appendRESP(nil, 2), []byte("EXISTS"))
	command := appendWord(before[:len(before):len(before)], make([]byte, workload.HashLen))
	return bytes.Repeat(command, hashes), len(before) + wordHead, len(command)
}

// MemberHead is how the reply to an SMISMEMBER of the given number of hashes begins.
func MemberHead(hashes int) []byte { return appendRESP(nil, hashes) }

// IntegerLen is the length of an integer in a reply, ":0\r\n" or ":1\r\n".
const IntegerLen = 4

// LeadingOnes returns how many of the integers of a reply are 1, from the first on.
func LeadingOnes(reply []byte) (int, error) {
	leading := -1
	for i := 0; i < len(reply); i += IntegerLen {
		word := reply[i:min(i+IntegerLen, len(reply))]
		if string(word) == ":1\r\n" {
			continue
		}
		if string(word) != ":0\r\n" {
			return 0, fmt.Errorf("%w: %q is no 0 or 1", measure.ErrAnswer, word)
		}
		if leading < 0 {
			leading = i / IntegerLen
		}
	}
	if leading < 0 {
		leading = len(reply) / IntegerLen
	}
	return leading, nil
}
