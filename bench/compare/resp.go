//go:build linux

package compare

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/hitline/hitline/bench/measure"
)

// redisSet is the name of the set of all hashes.
const redisSet = "blocks"

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

// memberTemplate returns one SMISMEMBER for the given number of hashes, and where they are.
func memberTemplate(hashes int) (template []byte, first, stride int) {
	b := appendRESP(nil, 2+hashes)
	b = appendWord(appendWord(b, []byte("SMISMEMBER")), []byte(redisSet))
	first = len(b) + wordHead
	word := appendWord(nil, make([]byte, hashLen))
	return append(b, bytes.Repeat(word, hashes)...), first, len(word)
}

// existsTemplate returns an EXISTS for each of the given number of hashes, and where they are.
func existsTemplate(hashes int) (template []byte, first, stride int) {
	before := appendWord(appendRESP(nil, 2), []byte("EXISTS"))
	command := appendWord(before[:len(before):len(before)], make([]byte, hashLen))
	return bytes.Repeat(command, hashes), len(before) + wordHead, len(command)
}

// memberHead is how the reply to an SMISMEMBER of the given number of hashes begins.
func memberHead(hashes int) []byte { return appendRESP(nil, hashes) }

// integerLen is the length of an integer in a reply, ":0\r\n" or ":1\r\n".
const integerLen = 4

// leadingOnes returns how many of the integers of a reply are 1, from the first on.
func leadingOnes(reply []byte) (int, error) {
	leading := -1
	for i := 0; i < len(reply); i += integerLen {
		word := reply[i:min(i+integerLen, len(reply))]
		if string(word) == ":1\r\n" {
			continue
		}
		if string(word) != ":0\r\n" {
			return 0, fmt.Errorf("%w: %q is no 0 or 1", measure.ErrAnswer, word)
		}
		if leading < 0 {
			leading = i / integerLen
		}
	}
	if leading < 0 {
		leading = len(reply) / integerLen
	}
	return leading, nil
}
