package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/access"
)

// secret is a token. No error may have it.
const secret = "s3cret-Token-0123456789"

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func readTestTokens(text string) ([]access.Credential, []string, error) {
	list, _, warnings, err := readTokens("t.yaml", []byte(text), noon, func(pool string) bool { return pool == "llama" || pool == "" })
	return list, warnings, err
}

func TestTokens(t *testing.T) {
	list, warnings, err := readTestTokens(`
tokens:
  - {name: engines, token: "s3cret-Token-0123456789", allow: [lookup, ping], pools: [llama, ""], expires: 2027-01-01T01:00:00+01:00}
  - name: ops
    sha256: 5E884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8
    allow: all
  - {name: eng, certificate: engine.example.com, allow: []}
  - {name: number, token: 0123456789012345, allow: all}
`)
	require.NoError(t, err)
	assert.Empty(t, warnings)
	require.Len(t, list, 4)
	assert.Equal(t, access.DigestOf([]byte("password")), list[1].Digest)
	list[1].Digest = [32]byte{}
	assert.Equal(t, []access.Credential{
		{
			Name: "engines", Digest: access.DigestOf([]byte(secret)), Permissions: access.Lookup | access.Ping, Pools: []string{"llama", ""},
			Expires: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).Local(),
		},
		{Name: "ops", Permissions: access.All},
		{Name: "eng", Certificate: "engine.example.com"},
		{Name: "number", Digest: access.DigestOf([]byte("0123456789012345")), Permissions: access.All},
	}, localTimes(list))

	list, _, err = readTestTokens("tokens: []\n")
	require.NoError(t, err)
	assert.Empty(t, list)
}

func localTimes(list []access.Credential) []access.Credential {
	for i := range list {
		if !list[i].Expires.IsZero() {
			list[i].Expires = list[i].Expires.Local()
		}
	}
	return list
}

// A file may have a thousand tokens.
func TestManyTokens(t *testing.T) {
	const n = 1_000
	text := []byte("tokens:\n")
	for i := range n {
		text = fmt.Appendf(text, "  - {name: n%d, token: %016d, allow: [lookup, ping]}\n", i, i)
	}
	list, _, err := readTestTokens(string(text))
	require.NoError(t, err)
	require.Len(t, list, n)
	assert.Equal(t, access.DigestOf(fmt.Appendf(nil, "%016d", n-1)), list[n-1].Digest)
	_, _, err = readTestTokens(string(text) + "  - {name: n0, certificate: a, allow: all}\n")
	assert.EqualError(t, err, "t.yaml:1002:12: tokens[1000].name: is that of tokens[0] too")
}

func TestTokensWarnings(t *testing.T) {
	_, warnings, err := readTestTokens("tokens:\n  - {name: a, certificate: a, expires: 2026-11-01T12:00:00Z, pools: [llama, quen], allow: all}\n" +
		"  - {name: b, certificate: b, expires: 2026-11-01T12:00:01Z, allow: all}\n")
	require.NoError(t, err)
	assert.Equal(t, []string{
		"t.yaml:2:77: tokens[0].pools[1]: the server has no such pool",
		"t.yaml:2:40: tokens[0].expires: has passed; the credential is not valid",
	}, warnings)
}

// Every mistake has a place, and no error has what was written there.
func TestTokensErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", "t.yaml: tokens: is missing"},
		{"tokens:\n", "t.yaml:1:9: tokens: nothing where a list is expected"},
		{secret + "\n", "t.yaml:1:1: a value where fields are expected: tokens"},
		{secret + ": 1\n", "t.yaml:1:1: unknown field; known are tokens"},
		{"tokens: " + secret + "\n", "t.yaml:1:9: tokens: a value where a list is expected"},
		{"tokens:\n  - " + secret + "\n", "t.yaml:2:5: tokens[0]: a value where fields are expected: name, token, sha256, certificate, allow, pools, expires"},
		{"tokens:\n  - name: a\n    " + secret + ": b\n", "t.yaml:3:5: tokens[0]: unknown field; known are name, token, sha256, certificate, allow, pools, expires"},
		{"tokens:\n  - name: a\n    tokem: " + secret + "\n", "t.yaml:3:5: tokens[0]: unknown field; known are name, token, sha256, certificate, allow, pools, expires"},
		{"tokens:\n  - name: a\n    <<: {token: " + secret + "}\n", "t.yaml:3:5: tokens[0]: merge keys are not read here; write the fields out"},
		{"tokens:\n  - name: a\n    token: &x " + secret + "\n", "t.yaml:3:12: tokens[0].token: anchors, aliases and tags are not read here; write the value out"},
		{"tokens:\n  - name: a\n    token: \"" + secret + "\n", "t.yaml:3:12: is not YAML, or has a field twice"},
		{"tokens:\n  - name: a\n    token: [" + secret + "\n", "t.yaml:3:12: is not YAML, or has a field twice"},
		{"tokens:\n  - name: a\n    " + secret + ": 1\n    " + secret + ": 2\n", "t.yaml:4:5: is not YAML, or has a field twice"},
		{"tokens: []\n---\n" + secret + "\n", "t.yaml:3:1: a second document; only one is read, merge them"},

		{"tokens:\n  - token: " + secret + "\n", "t.yaml:2:5: tokens[0].name: is missing, or has control characters"},
		{"tokens:\n  - {token: " + secret + ", name: \"a\\nb\"}\n", "t.yaml:2:44: tokens[0].name: is missing, or has control characters"},
		{"tokens:\n  - name: a\n", "t.yaml:2:5: tokens[0]: needs one of token, sha256 and certificate"},
		{"tokens:\n  - name: a\n    token: " + secret + "\n    sha256: ''\n", "t.yaml:2:5: tokens[0]: has token and sha256; give one of them"},
		{"tokens:\n  - name: a\n    token:\n", "t.yaml:3:12: tokens[0].token: has no value; leave the field out for its default"},
		{"tokens:\n  - name: a\n    token: s3cret-Token-01\n", "t.yaml:3:12: tokens[0].token: has 15 bytes, must have 16 to 255"},
		{"tokens:\n  - name: a\n    token: " + secret + " b\n", "t.yaml:3:12: tokens[0].token: has white space or control characters"},
		{"tokens:\n  - name: a\n    certificate: ''\n", "t.yaml:3:18: tokens[0].certificate: is empty; give a name in the client's certificate"},
		{"tokens:\n  - name: a\n    sha256: " + secret + "\n", "t.yaml:3:13: tokens[0].sha256: is not the SHA-256 digest of a token: 64 hexadecimal digits"},
		{"tokens:\n  - name: a\n    sha256: " + strings.Repeat("0", 64) + "\n", "t.yaml:3:13: tokens[0].sha256: is not the SHA-256 digest of a token: 64 hexadecimal digits"},
		{"tokens:\n  - name: a\n    certificate: b\n    allow: " + secret + "\n", "t.yaml:4:12: tokens[0].allow: must be all, or a list such as [lookup, ping]"},
		{"tokens:\n  - name: a\n    certificate: b\n    allow: [ping, " + secret + "]\n", "t.yaml:4:19: tokens[0].allow[1]: is no permission; known are lookup, plan, explain, stat, ping, pool, holders, store, evict, reset, and all without a list"},
		{"tokens:\n  - name: a\n    certificate: b\n    pools: []\n", "t.yaml:4:5: tokens[0].pools: names no pool; leave it out for every pool"},
		{"tokens:\n  - name: a\n    certificate: b\n    expires: " + secret + "\n", "t.yaml:4:14: tokens[0].expires: is not a time such as 2027-01-01T00:00:00Z"},
		{"tokens:\n  - name: a\n    certificate: b\n", "t.yaml:2:5: tokens[0]: has no allow; give all, or a list such as [lookup, ping]"},
		{"tokens:\n  - {name: a, certificate: b, allow: all}\n  - {name: a, certificate: c, allow: all}\n", "t.yaml:3:12: tokens[1].name: is that of tokens[0] too"},
		{"tokens:\n  - {name: a, token: passwordpassword, allow: all}\n  - {name: c, sha256: 2e2b24f8ee40bb847fe85bb23336a39ef5948e6b49d897419ced68766b16967a, allow: all}\n", "t.yaml:3:5: tokens[1]: is the same credential as tokens[0]"},
	} {
		t.Run(test.text, func(t *testing.T) {
			_, _, err := readTestTokens(test.text)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.want)
			for e := err; e != nil; {
				assert.NotContains(t, e.Error(), secret)
				u, ok := e.(interface{ Unwrap() error })
				if !ok {
					break
				}
				e = u.Unwrap()
			}
		})
	}
}

// Whatever a file holds, no error has a token, and reading it takes little memory. A part of it is repeated: the parser
// takes most for what is deep or long.
func FuzzTokens(f *testing.F) {
	f.Add("tokens:\n  - {name: a, token: ", "", ", allow: all}\n", uint16(0))
	f.Add("tokens:\n  - name: a\n    expires: ", "", ": 1\n\t", uint16(0))
	f.Add("tokens: ", "[", "", uint16(60_000))
	f.Add("", "- ", "a", uint16(10_000))
	f.Add("tokens: {", "1, ", "}", uint16(8_000))
	f.Add("", "--- a\n", "", uint16(2_000))
	f.Fuzz(func(t *testing.T, before, repeated, after string, n uint16) {
		text := before + strings.Repeat(repeated, min(int(n), maxText/max(len(repeated), 1))) + secret + after
		if strings.Count(text, secret) > 1 {
			return
		}
		var err error
		bytes := allocated(func() { _, _, err = readTestTokens(text) })
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Error(err)
		}
		if bytes > maxParsed {
			t.Errorf("%d bytes are allocated for a text of %d", bytes, len(text))
		}
	})
}
