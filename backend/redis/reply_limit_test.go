package redis

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkIn checks a stream in pieces of the given size.
func checkIn(stream string, size int) error {
	var l replyLimit
	for len(stream) > 0 {
		n := min(size, len(stream))
		if err := l.check([]byte(stream[:n])); err != nil {
			return err
		}
		stream = stream[n:]
	}
	return nil
}

// Replies of all kinds pass, up to each bound, and no further, however the stream is cut.
func TestReplyLimit(t *testing.T) {
	text := strings.Repeat("x", maxReplyString)
	for stream, want := range map[string]string{
		"+OK\r\n-ERR no\r\n:-17\r\n_\r\n#t\r\n,1.5\r\n(123\r\n+\r\n":                      "",
		"$0\r\n\r\n$2\r\n\r\n\r\n!5\r\nERR x\r\n=7\r\ntxt:abc\r\n$-1\r\n":                 "",
		"*2\r\n$1\r\n0\r\n*3\r\n$2\r\n$9\r\n$-1\r\n*0\r\n*-1\r\n%1\r\n+a\r\n:1\r\n~0\r\n": "",
		"$" + strconv.Itoa(maxReplyString) + "\r\n" + text + "\r\n:1\r\n":                 "",
		strings.Repeat(":1\r\n", maxReplyElements):                                        "",
		"+" + strings.Repeat("x", maxReplyLine-3) + "\r\n":                                "",
		"$2\r\nabcd$536870912\r\n":                                                        "a string of 536870912 bytes, at most 1048576",
		"!1048577\r\n":                                                                    "a string of 1048577 bytes",
		"*131072\r\n":                                                                     "more than 131072 elements",
		"~4611686018427387904\r\n":                                                        "more than 131072 elements",
		"%4611686018427387904\r\n":                                                        "more than 131072 elements",
		strings.Repeat(":1\r\n", maxReplyElements+1):                                      "more than 131072 elements",
		strings.Repeat("*1\r\n", maxReplyElements/2+1):                                    "more than 131072 elements",
		"+" + strings.Repeat("x", maxReplyLine):                                           "a line of more than 16384 bytes",
		strings.Repeat("$1048576\r\n"+text+"\r\n", 8):                                     "more than 8388608 bytes",
		"$-2\r\n":                   "not a number",
		"$99999999999999999999\r\n": "not a number",
		"*?\r\n":                    "not a number",
		"$\r\n":                     "not a number",
		":1\n":                      "no reply",
		"\r\n":                      "no reply",
		"|1\r\n+a\r\n$-1\r\n":       "no reply",
		">1\r\n+x\r\n":              "no reply",
		"HTTP/1.1 200 OK\r\n":       "no reply",
	} {
		for _, size := range []int{1, 3, 4096, len(stream)} {
			if err := checkIn(stream, size); want == "" {
				require.NoError(t, err, "%.60q in pieces of %d", stream, size)
			} else {
				require.ErrorContains(t, err, want, "%.60q in pieces of %d", stream, size)
			}
		}
	}
}

// The replies to each request are counted anew.
func TestReplyLimitReset(t *testing.T) {
	var l replyLimit
	for range 3 {
		l.reset()
		require.NoError(t, l.check([]byte(strings.Repeat(":1\r\n", maxReplyElements))))
	}
	require.Error(t, l.check([]byte(":1\r\n")))
}

// A stream passes or fails, however it is cut.
func FuzzReplyLimit(f *testing.F) {
	f.Add("+OK\r\n*2\r\n$1\r\n0\r\n*3\r\n$2\r\nab\r\n%1\r\n:-17\r\n", 3)
	f.Add("$9999999\r\n", 1)
	f.Fuzz(func(t *testing.T, stream string, size int) {
		require.Equal(t, checkIn(stream, max(1, len(stream))) == nil, checkIn(stream, max(1, size)) == nil)
	})
}
