package compare

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exchange is a connection of which all that comes is known ahead.
type exchange struct {
	io.Reader
	bytes.Buffer
}

func (e *exchange) Read(p []byte) (int, error) { return e.Reader.Read(p) }

func TestMapServer(t *testing.T) {
	hash := func(c string) string { return strings.Repeat(c, hashLen) }
	lookup := func(tokens uint32, hashes string) string {
		return string(plain.lookup(tokens, len(hashes))) + hashes
	}
	store := func(hashes string) string {
		before, _ := plain.store(len(hashes))
		return string(before) + hashes
	}
	all := hash("a") + hash("b") + hash("c")
	m := mapServer{blockSize: 16, held: map[[hashLen]byte]struct{}{}}
	for _, test := range []struct{ what, request, reply string }{
		{"empty", lookup(48, all), "\x00\x00\x00\x00"},
		{"store", store(hash("a") + hash("b")), "\x00\x00\x00\x00"},
		{"two of three, twice", lookup(48, all) + lookup(48, all), "\x00\x00\x00\x20\x00\x00\x00\x20"},
		{"no more than asked for", lookup(31, all), "\x00\x00\x00\x10"},
		{"not from the first on", lookup(48, hash("c")+hash("a")), "\x00\x00\x00\x00"},
		{"no hashes", lookup(48, ""), "\x00\x00\x00\x00"},
		{"store all", store(all), "\x00\x00\x00\x00"},
		{"three of three", lookup(48, all), "\x00\x00\x00\x30"},
	} {
		e := &exchange{Reader: strings.NewReader(test.request)}
		require.ErrorIs(t, m.serve(e), io.EOF, test.what)
		assert.Equal(t, test.reply, e.String(), test.what)
	}
	for want, request := range map[string]string{
		"a request of 4 bytes":           "\x00\x00\x00\x04",
		"a request of 4294967295 bytes":  "\xff\xff\xff\xff",
		"'X' is neither lookup nor stor": "\x00\x00\x00\x05X\x00\x00\x00\x00",
		"unexpected EOF":                 "\x00\x00\x00\x05L",
	} {
		e := &exchange{Reader: strings.NewReader(request)}
		require.ErrorContains(t, m.serve(e), want)
		assert.Zero(t, e.Len())
	}
}
