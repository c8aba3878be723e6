package netproto

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The bytes of docs/protocol.md.
func TestHoldersBytes(t *testing.T) {
	query := `{"model":"llama"}`
	b := append(AppendHolders(nil, nil, []byte(query), 8, 16), "01234567abcdefgh"...)
	require.Equal(t, "0107"+hex.EncodeToString([]byte("holders"))+"0111"+hex.EncodeToString([]byte(query))+"01020008"+
		"0010"+hex.EncodeToString([]byte("01234567abcdefgh")), hex.EncodeToString(b))
}

func TestHoldersRequests(t *testing.T) {
	h3 := hashes(3, 16)
	hex3, long := fmt.Sprintf("%x", h3), strings.Repeat("q", MaxHoldersQuery)
	begun := func(n int, query, hashes string) []string {
		return []string{fmt.Sprintf("begin holders len=%d n=%d", min(n, 1)*16, n), "holders env= query=" + query + " hashes=" + hashes}
	}
	refused := func(err error) []string { return []string{"holders env= problem=" + err.Error()} }
	for name, c := range map[string]struct {
		frames []string
		want   []string
	}{
		"hashes":            {[]string{"{}", be(2, 16), h3}, begun(3, "{}", hex3)},
		"extra ignored":     {[]string{"{}", be(2, 16), h3, "x", ""}, begun(3, "{}", hex3)},
		"any text":          {[]string{"not JSON", be(2, 16), h3}, begun(3, "not JSON", hex3)},
		"no hashes":         {[]string{"{}", be(2, 0), ""}, begun(0, "{}", "")},
		"longest query":     {[]string{long, be(2, 16), h3}, begun(3, long, hex3)},
		"query too long":    {[]string{long + "q", be(2, 16), h3}, refused(ErrHoldersQuery)},
		"empty query":       {[]string{"", be(2, 16), h3}, refused(ErrHoldersQuery)},
		"hash length 65":    {[]string{"{}", be(2, 65), strings.Repeat("x", 65)}, refused(ErrHashLen)},
		"length of 1 byte":  {[]string{"{}", be(1, 16), h3}, refused(ErrHashLen)},
		"length of 4 bytes": {[]string{"{}", be(4, 16), h3}, refused(ErrHashLen)},
		"no hash length":    {[]string{"{}", "", h3}, refused(ErrHashLen)},
		"hashes of 0 bytes": {[]string{"{}", be(2, 0), h3}, refused(ErrHashLen)},
		"cut hash":          {[]string{"{}", be(2, 16), h3 + "x"}, refused(ErrCutKey)},
		"blob missing":      {[]string{"{}", be(2, 16)}, refused(ErrMissingFrame)},
		"query alone":       {[]string{"{}"}, refused(ErrMissingFrame)},
		"only a tag":        {nil, refused(ErrMissingFrame)},
	} {
		t.Run(name, func(t *testing.T) {
			b := append(message(append([]string{"holders"}, c.frames...)...), message("holders", "{}", be(2, 0), "")...)
			for _, size := range []int{0, 1, 3, 1000} {
				got, _, err := feed(b, size, Limits{})
				require.NoError(t, err, "the connection goes on")
				require.Equal(t, append(c.want[:len(c.want):len(c.want)], begun(0, "{}", "")...), got, "pieces of %d", size)
			}
		})
	}
}

// A Reader retains the buffer of usual queries, and not that of long ones.
func TestHoldersQueryIsReused(t *testing.T) {
	r := NewReader(Limits{}, 0)
	for _, c := range []struct{ size, least, most int }{{100, 100, 1000}, {5000, 0, 0}, {10, 0, 100}} {
		_, err := feedTo(r, message("holders", strings.Repeat("q", c.size), be(2, 0), ""), 0)
		require.NoError(t, err)
		require.GreaterOrEqual(t, r.Held(), c.least)
		require.LessOrEqual(t, r.Held(), c.most)
	}
}
