package mooncake

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
)

// existBody returns a reply body of a release or a debug build of the master.
func existBody(answers []int, debug bool) []byte {
	body, width := openBody(typeExists, len(answers), debug)
	body = appendLen(body, width, len(answers))
	for _, a := range answers {
		if a < 0 {
			body = le.AppendUint32(append(body, 0), uint32(int32(a)))
		} else {
			body = append(body, 1, byte(a))
		}
	}
	return body
}

// openBody returns the head of a body, and the width for counts up to greatest.
func openBody(typ wireType, greatest int, debug bool) ([]byte, int) {
	width := widthOf(greatest)
	body := appendHead(nil, typ, width)
	if debug {
		if width == 1 {
			body = append(le.AppendUint32(nil, typ.code|hasMeta), 0)
		}
		body[4] |= metaLiteral
		body = append(append(body, typ.literal...), 0)
	}
	return body, width
}

// textBody returns the body of an error reply.
func textBody(text string) []byte {
	body, width := openBody(typeText, len(text), false)
	return append(appendLen(body, width, len(text)), text...)
}

// TestParseExist decodes bytes that the RPC library of the master has sent.
func TestParseExist(t *testing.T) {
	for _, body := range []string{
		"5c8c5f2a 03 0101 0100 00 40fdffff",
		"5d8c5f2a 04 84870b0100 03 0101 0100 00 40fdffff",
		"5d8c5f2a 08 0300 0101 0100 00 40fdffff",
		"5d8c5f2a 10 03000000 0101 0100 00 40fdffff",
		"5d8c5f2a 18 0300000000000000 0101 0100 00 40fdffff",
		"5d8c5f2a 1c 84870b0100 0300000000000000 0101 0100 00 40fdffff",
	} {
		answers := make([]int, 3)
		require.NoError(t, parseExist(unhex(t, body), answers), body)
		require.Equal(t, []int{1, 0, -704}, answers)
	}
	// A whole reply of the mooncake_master of v0.3.13.post1, as PyPI has it.
	reply := unhex(t, "15000000 02000000 11000000 00000000 5d8c5f2a 04 84870b0100 03 0100 0100 0100")
	h, err := parseHeader(reply[:responseLen], 2, 17)
	require.NoError(t, err)
	require.Equal(t, 17, h.body)
	answers := []int{9, 9, 9}
	require.NoError(t, parseExist(reply[responseLen:], answers))
	require.Equal(t, []int{0, 0, 0}, answers)
	for _, n := range []int{0, 1, 255, 256, 1000, 70000} {
		for _, debug := range []bool{false, true} {
			want := make([]int, n)
			for i := range want {
				want[i] = []int{0, 1, -704, -1010}[i*7%4]
			}
			got := make([]int, n)
			require.NoError(t, parseExist(existBody(want, debug), got))
			require.Equal(t, want, got)
		}
	}
	require.Equal(t, unhex(t, "5d8c5f2a 08 e803 0101"), existBody(slices.Repeat([]int{1}, 1000), false)[:9])
	require.Equal(t, unhex(t, "5d8c5f2a 10 70110100"), existBody(slices.Repeat([]int{1}, 70000), false)[:9])
}

// TestParseExistRefuses has replies for three keys, each with one error.
func TestParseExistRefuses(t *testing.T) {
	for body, why := range map[string]string{
		"":                                   "ends 4 bytes early",
		"5c8c5f":                             "early",
		"5c8c5f2a":                           "early",
		"5e8c5f2a 03 0101 0100 0100":         "type 2a5f8c5e, not 2a5f8c5c",
		"76facf9d 03 616263":                 "type 9dcffa76",
		"5d8c5f2a":                           "early",
		"5d8c5f2a 01 0d00 03 0101 0100 0100": "a length of 13 in 14 bytes",
		"5d8c5f2a 20 03 0101 0100 0100":      "unknown bits of meta 20",
		"5d8c5f2a 04 84870b0200 03 0101":     "type literal 84870b0200, not 84870b0100",
		"5d8c5f2a 04 8487":                   "early",
		"5c8c5f2a 02 0101 0100":              "2 answers for 3 keys",
		"5c8c5f2a 04 0101 0100 0101 0101":    "4 answers for 3 keys",
		"5c8c5f2a 00":                        "0 answers for 3 keys",
		"5c8c5f2a ff 0101 0100 0101":         "a length of 255 with 6 bytes left",
		"5d8c5f2a 18 ffffffffffffffff 0101":  "a length of 18446744073709551615",
		"5c8c5f2a 03 0101 0100 01":           "early",
		"5c8c5f2a 03 0101 0100 00 40fdff":    "early",
		"5c8c5f2a 03 0101 0100 0102":         "02 for a bool",
		"5c8c5f2a 03 0101 0100 0201":         "02 for a bool",
		"5c8c5f2a 03 0101 0100 00 00000000":  "error 0, which is none",
		"5c8c5f2a 03 0101 0100 0101 00":      "1 bytes after it",
	} {
		err := parseExist(unhex(t, body), make([]int, 3))
		require.ErrorIs(t, err, backend.ErrReply, body)
		require.ErrorContains(t, err, why, body)
	}
}

func TestParseOthers(t *testing.T) {
	version, err := parseVersion(unhex(t, "34ccb31c 01 06 302e332e3133"))
	require.NoError(t, err)
	require.Equal(t, "0.3.13", version)
	_, err = parseVersion(unhex(t, "34ccb31c 00 0efcffff"))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "store error -1010, not serving now")
	_, err = parseVersion(unhex(t, "34ccb31c 00 0efcffff 00"))
	require.ErrorIs(t, err, backend.ErrReply)

	n, err := parseCount(unhex(t, "34686686 d007000000000000"))
	require.NoError(t, err)
	require.EqualValues(t, 2000, n)
	_, err = parseCount(unhex(t, "34686686 ffffffffffffffff"))
	require.ErrorContains(t, err, "-1 keys removed")
	_, err = parseCount(unhex(t, "34686686 d0070000"))
	require.ErrorIs(t, err, backend.ErrReply)

	require.EqualError(t, parseError(11, unhex(t, "76facf9d 1f"+hex.EncodeToString([]byte("the rpc function not registered")))),
		"it answers RPC error 11 (no such function): the rpc function not registered")
	require.EqualError(t, parseError(4, unhex(t, "76facf9d 0f"+hex.EncodeToString([]byte("invalid rpc arg")))),
		"it answers RPC error 4 (other arguments expected): invalid rpc arg")
	require.EqualError(t, parseError(255, unhex(t, "4ce62b37 2a00 03 616263")), "it answers RPC error 255 (42): abc")
	require.EqualError(t, parseError(3, nil), "it answers RPC error 3 (timed out)", "a text that cannot be read")
	require.EqualError(t, parseError(10, textBody("a\nb\xff\x00c")), "it answers RPC error 10 (exception): a\\nb\ufffd\\x00c")
	require.EqualError(t, parseError(14, textBody(strings.Repeat("x", 300))), "it answers RPC error 14 (message too large): "+strings.Repeat("x", 200)+"…")
}

func TestParseHeader(t *testing.T) {
	h, err := parseHeader(unhex(t, "15000b00 07000000 24000000 00000000"), 7, 36)
	require.NoError(t, err)
	require.Equal(t, header{code: 11, seq: 7, body: 36}, h)
	for head, want := range map[string]struct {
		is   error
		text string
	}{
		"15000000 08000000 24000000 00000000": {backend.ErrReply, "to request 8, not 7"},
		"15000000 07000000 25000000 00000000": {backend.ErrReply, "37 bytes, at most 36 were expected"},
		"15000000 07000000 ffffffff 00000000": {backend.ErrReply, "at most 36"},
		"15000000 07000000 24000000 01000000": {backend.ErrReply, "1 bytes attached"},
		"15010000 07000000 24000000 00000000": {errNotMaster, "begins with"},
		"16000000 07000000 24000000 00000000": {errNotMaster, "begins with"},
		"15030100 0202460a 00000000 00000000": {errNotMaster, "TLS"},
		"48545450 2f312e31 20343030 20426164": {errNotMaster, "admin port"},
	} {
		_, err := parseHeader(unhex(t, head), 7, 36)
		require.ErrorIs(t, err, want.is, head)
		require.ErrorContains(t, err, want.text, head)
	}
}

// FuzzReply decodes any body; count is the number of requested keys.
func FuzzReply(f *testing.F) {
	f.Add(unhex(f, "5c8c5f2a 03 0101 0100 00 40fdffff"), uint8(3))
	f.Add(unhex(f, "5d8c5f2a 04 84870b0100 03 0101 0100 00 40fdffff"), uint8(3))
	f.Add(unhex(f, "34ccb31c 01 06 302e332e3133"), uint8(0))
	f.Add(unhex(f, "4ce62b37 2a00 03 616263"), uint8(0))
	for _, reply := range replicaReplies {
		f.Add(unhex(f, reply), uint8(0))
	}
	f.Fuzz(func(t *testing.T, body []byte, count uint8) {
		before := bytes.Clone(body)
		answers := make([]int, count)
		if parseExist(body, answers) == nil {
			for _, a := range answers {
				require.LessOrEqual(t, a, 1)
			}
			again := make([]int, count)
			require.NoError(t, parseExist(existBody(answers, false), again))
			require.Equal(t, answers, again)
		}
		if version, err := parseVersion(body); err != nil {
			require.Empty(t, version)
		}
		_, _ = parseCount(body)
		if lease, err := parseLease(body); err == nil {
			require.True(t, lease >= 0 && lease <= maxLease)
		}
		for _, code := range []byte{codeArguments, codeUser} {
			require.LessOrEqual(t, len(parseError(code, body).Error()), 700)
		}
		if len(body) >= responseLen {
			h, err := parseHeader(body[:responseLen], 7, 100)
			require.True(t, err != nil || h.seq == 7 && h.body <= 100)
		}
		require.Equal(t, before, body, "the body is not modified")
	})
}

func BenchmarkDecode(b *testing.B) {
	answers := make([]int, 512)
	reply := appendLen(appendHead(nil, typeExists, 2), 2, len(answers))
	for i := range answers {
		reply = append(reply, 1, byte(i%2))
	}
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, parseExist(reply, answers))
	}
	b.SetBytes(int64(len(reply)))
}
