package netproto

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzSession sends a whole connection: raw, or behind a handshake. However its bytes are cut and wherever the handler
// stops, the handler gets the same calls, and a raw connection has the messages that ParseMessage finds in it.
func FuzzSession(f *testing.F) {
	h := hashes(5, 20)
	for i, b := range [][]byte{
		message("lookup", be(4, 80), be(2, 20), h+"t"),
		append(message("ping", "a", "b"), message("evict", be(8, 1), be(2, 20), h)...),
		append(message("reset"), "\x02\x80\x00\x00\x00\x00\x00\x00\x00"...),
		append(message("lookup_from", numbers(16, 16), be(2, 0), ""), message("plan", numbers(80, 0), be(2, 20), h+"t")...),
		append(message("store_mask", numbers(0, 0, 7)), message("\x00id", "", "load_mask", be(8, 5))...),
		message("store_prompt", numbers(0, 0, 1<<8, 0), be(6, 1)+be(6, 2), be(8, 16), be(2, 20), h),
		append(message("reset_rank", be(8, math.MaxUint64)), message("pool", "{}")...),
		append(message("auth", "token"), message("\x00id", "", "auth", "")...),
		append(message("store", be(7, 1), be(2, 20), h), message("\x00id", "lookup")...),
		message("a", "", "b"), []byte("GET / HTTP/1.1\r\n"),
		[]byte(shaken + string(message("", "stat"))), []byte(plainShaken + string(message("", "stat"))),
		[]byte(greet(3, 0, "PLAIN") + hello("", "x")), []byte(greet(3, 1, "CURVE") + initiate("REQ")),
		[]byte(greet(3, 0, "NULL") + ready("PUB")), []byte(greet(3, 1, "NULL")[:10] + "\x01"), []byte(greet(3, 1, "NULL") + command("ERROR", "\x03bad")),
	} {
		f.Add(b, false, uint64(i))
	}
	for i, b := range [][]byte{
		message("", "lookup", be(4, 80), be(2, 20), h+"t"),
		[]byte(string(message("id", "", "store", be(6, 1), be(2, 20), h)) + command("PING", "\x00\x00c") + string(message("id", "x", "", "ping", "a"))),
		[]byte(command("SUBSCRIBE", "a") + longCommand("PING", "\x00\x01") + "\x01\x00" + command("PING", "\x00\x00")),
		message("lookup", be(4, 80), be(2, 20), strings.Repeat(h, 4)),
	} {
		f.Add(b, true, uint64(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, handshake bool, seed uint64) {
		plain := seed%2 == 0
		switch {
		case handshake && plain:
			b = append([]byte(plainShaken), b...)
		case handshake:
			b = append([]byte(shaken), b...)
		}
		checkStopping(t, b, plain, seed)
		if len(b) > 0 && b[0] < 4 {
			checkMessages(t, b, seed)
		}
	})
}

// checkMessages requires that a Reader ends as many requests as ParseMessage finds messages, that a message which it
// finds is encoded as it was or shorter, and that none of its beginnings is one.
func checkMessages(t *testing.T, b []byte, seed uint64) {
	t.Helper()
	limits := Limits{MaxMessage: 70000, MaxFrames: 12}
	rec, rng := &recorder{}, rand.New(rand.NewPCG(seed, 3))
	wrong := feedAll(newTestReader(limits, false), b, rec)
	ended := 0
	for _, line := range rec.lines {
		if !strings.HasPrefix(line, "begin") {
			ended++
		}
	}
	found, rest := 0, b
	for {
		frames, n, err := ParseMessage(rest, limits, nil)
		if err != nil {
			require.Zero(t, n)
			break
		}
		found++
		var texts []string
		for _, frame := range frames {
			texts = append(texts, string(frame))
		}
		encoded := message(texts...)
		require.LessOrEqual(t, len(encoded), n)
		again, _, err := ParseMessage(encoded, Limits{}, nil)
		require.NoError(t, err)
		require.Equal(t, frames, again)
		_, _, err = ParseMessage(rest[:rng.IntN(n)], limits, nil)
		require.ErrorIs(t, err, ErrShort)
		rest = rest[n:]
	}
	if wrong == nil {
		require.Equal(t, found, ended)
	} else { // a Reader also ends at what no request may have, as a wrong envelope
		require.GreaterOrEqual(t, found, ended)
	}
}
