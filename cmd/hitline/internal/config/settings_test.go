package config

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/lookup/access"
)

// put writes a file into dir and returns its path.
func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestReadSettings(t *testing.T) {
	dir := t.TempDir()
	ca := certtest.NewCA("ca")
	month := time.Now().Add(30 * 24 * time.Hour)
	cert, key := certtest.WriteFiles(dir, "server", ca.LeafUntil(month, "localhost"))
	authority := ca.WriteFile(filepath.Join(dir, "ca.crt"))
	tokens := put(t, dir, "tokens.yaml", "tokens:\n  - {name: a, token: "+secret+", allow: all}\n  - {name: b, certificate: b, allow: all}\n")
	c, err := Load(Source{File: write(t, "listen:\n  - address: tls://0.0.0.0:1\n    allow: [ping]\n    tokens: "+tokens+
		"\n    tls: {cert: "+cert+", key: "+key+", client_ca: "+authority+"}\n  - tcp://127.0.0.1:1\n  - tcp://0.0.0.0:2\n  - localhost:3\n")})
	require.NoError(t, err)

	s, warnings, err := c.ReadSettings(&c.Listen[0], time.Now())
	require.NoError(t, err)
	require.Len(t, warnings, 1, "the authority's certificate ends in a day")
	assert.Contains(t, warnings[0], "listen[0].tls.client_ca: "+authority+": a certificate expires at ")
	assert.Equal(t, access.Ping, s.Rules.Anonymous)
	assert.Equal(t, "a", s.Rules.FindToken([]byte(secret)).Name)
	assert.Equal(t, "b", s.Rules.FindCertificate([]string{"b"}).Name)
	assert.EqualValues(t, tls.VersionTLS13, s.TLS.MinVersion)
	assert.Equal(t, tls.RequireAndVerifyClientCert, s.TLS.ClientAuth)
	assert.True(t, s.TLS.ClientCAs.Equal(ca.Pool()))
	assert.Len(t, s.TLS.Certificates, 1)

	for i, rules := range map[int]bool{1: false, 2: true, 3: false} {
		s, _, err := c.ReadSettings(&c.Listen[i], time.Now())
		require.NoError(t, err)
		assert.Nil(t, s.TLS)
		assert.Equal(t, rules, s.Rules != nil, "without rules the server goes by the bound address")
	}
}

// What may not be meant is said, with its place.
func TestReadSettingsWarnings(t *testing.T) {
	dir := t.TempDir()
	ca := certtest.NewCA("ca")
	soon := time.Now().Add(6 * 24 * time.Hour).Truncate(time.Second).UTC()
	past := time.Now().Add(-time.Hour).Truncate(time.Second).UTC()
	soonCert, soonKey := certtest.WriteFiles(dir, "soon", ca.LeafUntil(soon, "a"))
	pastCert, pastKey := certtest.WriteFiles(dir, "past", ca.LeafUntil(past, "a"))
	longCert, longKey := certtest.WriteFiles(dir, "long", ca.LeafUntil(soon.Add(48*time.Hour), "a"))
	tokens := put(t, dir, "t.yaml", "tokens:\n  - {name: a, token: "+secret+", allow: all}\n")
	names := put(t, dir, "n.yaml", "tokens:\n  - {name: a, certificate: a, allow: all}\n")
	none := put(t, dir, "none.yaml", "tokens: []\n")
	for entry, want := range map[string]string{
		"tcp://127.0.0.1:1": "",
		"ipc:///x":          "",
		"tcp://0.0.0.0:1":   `:1:10: listen[0]: "tcp://0.0.0.0:1" is not on loopback, and has no allow, tokens or client_ca: its peers may only lookup, plan, explain, stat, ping, holders; the plug-in for vLLM needs pool too`,
		`{address: "tcp://0.0.0.0:1", allow: all}`:                                                                  "",
		`{address: "tcp://0.0.0.0:1", tokens: ` + tokens + `}`:                                                      `:1:47: listen[0].tokens: tokens come to "tcp://0.0.0.0:1" in plain text, for all on the way to read; use tls://`,
		`{address: "tcp://0.0.0.0:1", tokens: ` + none + `}`:                                                        "",
		`{address: "tcp://127.0.0.1:1", tokens: ` + tokens + `}`:                                                    "",
		`{address: "tcp://127.0.0.1:1", tokens: ` + names + `}`:                                                     `:1:49: listen[0].tokens: ` + names + ` has certificates alone, and there is no client_ca`,
		`{address: "tls://127.0.0.1:1", tls: {cert: ` + soonCert + `, key: ` + soonKey + `}}`:                       `:1:53: listen[0].tls.cert: ` + soonCert + `: a certificate expires at ` + soon.Format(time.RFC3339),
		`{address: "tls://127.0.0.1:1", tls: {cert: ` + pastCert + `, key: ` + pastKey + `}}`:                       `:1:53: listen[0].tls.cert: ` + pastCert + `: a certificate has expired at ` + past.Format(time.RFC3339),
		`{address: "tls://127.0.0.1:1", tls: {cert: ` + longCert + `, key: ` + longKey + `}}`:                       "",
		`{address: "tls://0.0.0.0:1", tokens: ` + tokens + `, tls: {cert: ` + longCert + `, key: ` + longKey + `}}`: "",
	} {
		file := write(t, "listen: ["+entry+"]\n")
		c, err := Load(Source{File: file})
		require.NoError(t, err, entry)
		_, warnings, err := c.ReadSettings(&c.Listen[0], time.Now())
		require.NoError(t, err, entry)
		if want != "" {
			want = file + want
		}
		assert.Equal(t, want, strings.Join(warnings, "\n"), entry)
	}
}

// Errors name the field, its place and the file.
func TestReadSettingsErrors(t *testing.T) {
	dir := t.TempDir()
	ca := certtest.NewCA("ca")
	cert, key := certtest.WriteFiles(dir, "one", ca.Leaf("a"))
	_, otherKey := certtest.WriteFiles(dir, "other", ca.Leaf("a"))
	text, err := os.ReadFile(cert)
	require.NoError(t, err)
	empty := put(t, dir, "empty.pem", "")
	half := put(t, dir, "half.pem", string(text[:len(text)/2]))
	bad := put(t, dir, "bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	wrong := put(t, dir, "wrong.yaml", "tokens:\n  - {name: a, token: short, allow: all}\n")
	large := put(t, dir, "large.yaml", strings.Repeat("#", 4<<20+1))
	tokens := func(path string) string { return `{address: "tcp://127.0.0.1:1", tokens: ` + path + "}" }
	files := func(cert, key, more string) string {
		return `{address: "tls://127.0.0.1:1", tls: {cert: ` + cert + ", key: " + key + more + "}}"
	}
	for _, test := range []struct{ entry, field, want string }{
		{tokens("/no/such"), "listen[0].tokens", "cannot read it: open /no/such: no such file or directory"},
		{tokens(dir), "listen[0].tokens", "cannot read it: " + dir + " is not a regular file"},
		{tokens(large), "listen[0].tokens", "cannot read it: " + large + " has 4194305 bytes, more than 4194304"},
		{tokens(wrong), "", wrong + ":2:22: tokens[0].token: has 5 bytes, must have 16 to 255"},
		{files("/no/such", key, ""), "listen[0].tls.cert", "cannot read it: open /no/such: no such file or directory"},
		{files(empty, key, ""), "listen[0].tls.cert", empty + ": no certificate in PEM"},
		{files(key, key, ""), "listen[0].tls.cert", key + ": no certificate in PEM"},
		{files(half, key, ""), "listen[0].tls.cert", half + ": a certificate is not whole"},
		{files(bad, key, ""), "listen[0].tls.cert", bad + ": x509: malformed certificate"},
		{files(cert, "/no/such", ""), "listen[0].tls.key", "cannot read it: open /no/such: no such file or directory"},
		{files(cert, empty, ""), "listen[0].tls.key", empty + ": tls: failed to find any PEM data in key input"},
		{files(cert, otherKey, ""), "listen[0].tls.key", otherKey + ": tls: private key does not match public key"},
		{files(cert, key, ", client_ca: "+empty), "listen[0].tls.client_ca", empty + ": no certificate in PEM"},
	} {
		file := write(t, "listen: ["+test.entry+"]\n")
		c, err := Load(Source{File: file})
		require.NoError(t, err, test.entry)
		_, _, err = c.ReadSettings(&c.Listen[0], time.Now())
		require.Error(t, err)
		if test.field == "" {
			assert.EqualError(t, err, test.want)
			continue
		}
		assert.Regexp(t, `:1:\d+: `+strings.NewReplacer("[", `\[`, "]", `\]`).Replace(test.field)+`: `, err.Error())
		_, got, _ := strings.Cut(err.Error(), test.field+": ")
		assert.Equal(t, test.want, got)
	}
}
