package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
)

// A folder counts unless it is sticky, and links are followed.
func TestExposures(t *testing.T) {
	c, err := Load(Source{})
	require.NoError(t, err)
	folder := filepath.Join(t.TempDir(), "d")
	require.NoError(t, os.Mkdir(folder, 0o700))
	file := put(t, folder, "secret", "")
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(file, link))
	exposures := func(mode, folderMode fs.FileMode) string {
		require.NoError(t, os.Chmod(file, mode))
		require.NoError(t, os.Chmod(folder, folderMode))
		return strings.ReplaceAll(strings.Join(c.exposuresOf("x", link, true), "\n"), filepath.Dir(folder)+"/", "")
	}
	assert.Empty(t, exposures(0o640, 0o755))
	assert.Equal(t, "default: x: d/secret has a secret, and may be read by everybody (mode 0644): chmod o-r", exposures(0o644, 0o755))
	assert.Equal(t, "default: x: d may be changed by everybody (mode 0777): chmod o-w", exposures(0o600, 0o777))
	assert.Empty(t, exposures(0o600, 0o777|fs.ModeSticky))
	assert.Empty(t, c.exposuresOf("x", filepath.Join(folder, "none"), true))
}

// Every file that decides what peers may do, or has a secret, is looked at.
func TestFileWarnings(t *testing.T) {
	dir := t.TempDir()
	ca := certtest.NewCA("ca")
	month := time.Now().Add(30 * 24 * time.Hour)
	cert, key := certtest.WriteFiles(dir, "server", ca.LeafUntil(month, "a"))
	authority, _ := certtest.WriteFiles(dir, "authority", ca.LeafUntil(month, "b"))
	tokens := put(t, dir, "tokens.yaml", "tokens: [{name: a, token: "+secret+", allow: all}]\n")
	digests := put(t, dir, "digests.yaml", "tokens: [{name: a, certificate: a, allow: all}]\n")
	peer := put(t, dir, "peer", secret+"\n")
	file := write(t, `listen:
  - {address: "tls://127.0.0.1:1", tokens: `+tokens+", tls: {cert: "+cert+", key: "+key+", client_ca: "+authority+`}}
  - {address: 127.0.0.1:2, tokens: `+digests+`}
router: {listen: {address: 127.0.0.1:3, tokens: `+tokens+`}, peers: ["http://127.0.0.1:4"], peer_token_file: `+peer+"}\n")
	warnings := func() string {
		c, err := Load(Source{File: file})
		require.NoError(t, err)
		all := c.fileWarnings(file)
		for i := range 2 {
			_, more, err := c.ReadSettings(&c.Listen[i], time.Now())
			require.NoError(t, err)
			all = append(all, more...)
		}
		_, more, err := c.ReadSettings(c.Router.Listen, time.Now())
		require.NoError(t, err)
		var exposures []string
		for _, line := range append(all, more...) {
			if _, exposure, found := strings.Cut(line, ": "); found && strings.Contains(exposure, "everybody") {
				exposures = append(exposures, strings.ReplaceAll(exposure, dir+"/", ""))
			}
		}
		return strings.Join(exposures, "\n")
	}
	chmod := func(mode fs.FileMode) {
		for _, path := range []string{tokens, digests, cert, key, authority, peer, file} {
			require.NoError(t, os.Chmod(path, mode))
		}
	}
	assert.Empty(t, warnings())
	chmod(0o644)
	const read = " has a secret, and may be read by everybody (mode 0644): chmod o-r"
	assert.Equal(t, "router.peer_token_file: peer"+read+"\nlisten[0].tokens: tokens.yaml"+read+"\nlisten[0].tls.key: server.key"+read+
		"\nrouter.listen.tokens: tokens.yaml"+read, warnings())
	chmod(0o602)
	const change = " may be changed by everybody (mode 0602): chmod o-w"
	assert.Equal(t, strings.TrimPrefix(change, " ")+"\nrouter.peer_token_file: peer"+change+"\nlisten[0].tokens: tokens.yaml"+change+
		"\nlisten[0].tls.cert: server.crt"+change+"\nlisten[0].tls.key: server.key"+change+"\nlisten[0].tls.client_ca: authority.crt"+change+
		"\nlisten[1].tokens: digests.yaml"+change+"\nrouter.listen.tokens: tokens.yaml"+change, warnings())
}

// A configuration with a password is a secret.
func TestFileWarningsOfAPassword(t *testing.T) {
	file := write(t, "backend: {redis: {url: \"redis://:pass@127.0.0.1/0\"}}\n")
	require.NoError(t, os.Chmod(file, 0o644))
	c, err := Load(Source{File: file})
	require.NoError(t, err)
	assert.Equal(t, []string{file + ": has a secret, and may be read by everybody (mode 0644): chmod o-r"}, c.fileWarnings(file))
	c, err = Load(Source{File: file, Environ: []string{"HITLINE_BACKEND_REDIS_URL=redis://:pass@127.0.0.1/1"}})
	require.NoError(t, err)
	assert.Empty(t, c.fileWarnings(file), "the password that is used is in no file")
}

// The key and the authorities of a Redis are looked at, too.
func TestFileWarningsOfRedis(t *testing.T) {
	dir := t.TempDir()
	key, ca := put(t, dir, "key", ""), put(t, dir, "ca", "")
	require.NoError(t, os.Chmod(key, 0o644))
	require.NoError(t, os.Chmod(ca, 0o646))
	c, err := Load(Source{Environ: []string{"HITLINE_BACKEND_REDIS_URL=rediss://h/0?ca=" + ca + "&cert=" + ca + "&key=" + key}})
	require.NoError(t, err)
	assert.Equal(t, []string{
		"HITLINE_BACKEND_REDIS_URL: backend.redis.url: " + key + " has a secret, and may be read by everybody (mode 0644): chmod o-r",
		"HITLINE_BACKEND_REDIS_URL: backend.redis.url: " + ca + " may be changed by everybody (mode 0646): chmod o-w",
	}, c.fileWarnings(""))
}
