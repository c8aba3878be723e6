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

func TestAccessFaults(t *testing.T) {
	us := identity{uid: 7, groups: []uint32{0, 7, 70}}
	for _, test := range []struct {
		a      accessOf
		secret bool
		want   string
	}{
		{accessOf{7, 7, 0o600}, true, ""},
		{accessOf{7, 7, 0o664}, false, ""},
		{accessOf{0, 0, 0o644}, false, ""},
		{accessOf{0, 70, 0o640}, true, ""},   // Kubernetes' fsGroup
		{accessOf{0, 70, 0o2775}, false, ""}, // a volume's folder of it
		{accessOf{0, 0, fs.ModeDir | 0o775}, false, ""},
		{accessOf{0, 0, fs.ModeDir | fs.ModeSticky | 0o777}, false, ""},
		{accessOf{8, 7, 0o600}, true, "belongs to user 8, who may change it; give it to root or to the server's user"},
		{accessOf{8, 7, fs.ModeDir | fs.ModeSticky | 0o777}, false, "belongs to user 8, who may change it; give it to root or to the server's user"},
		{accessOf{7, 9, 0o660}, false, "may be changed by group 9 (mode 0660): chmod g-w"},
		{accessOf{7, 7, 0o666}, false, "may be changed by everybody (mode 0666): chmod o-w"},
		{accessOf{0, 0, fs.ModeDir | 0o777}, false, "may be changed by everybody (mode 0777): chmod o-w"},
		{accessOf{0, 0, 0o644}, true, "has a secret, and may be read by everybody (mode 0644): chmod o-r"},
	} {
		assert.Equal(t, test.want, strings.Join(test.a.exposures(us, test.secret), "; "), "%+v", test)
	}
}

// The links by which Kubernetes changes a Secret are followed; their folder and that of the file count.
func TestFileFaults(t *testing.T) {
	mount := t.TempDir()
	data := filepath.Join(mount, "..2026")
	require.NoError(t, os.Mkdir(data, 0o755))
	file := put(t, data, "tls.key", "")
	require.NoError(t, os.Symlink("..2026", filepath.Join(mount, "..data")))
	link := filepath.Join(mount, "tls.key")
	require.NoError(t, os.Symlink("..data/tls.key", link))
	assert.Empty(t, fileExposures(link, true))

	require.NoError(t, os.Chmod(file, 0o644))
	assert.Equal(t, []string{file + " has a secret, and may be read by everybody (mode 0644): chmod o-r"}, fileExposures(link, true))
	assert.Empty(t, fileExposures(link, false))
	require.NoError(t, os.Chmod(mount, 0o777))
	assert.Equal(t, []string{mount + " may be changed by everybody (mode 0777): chmod o-w"}, fileExposures(link, false))
	require.NoError(t, os.Chmod(mount, 0o777|fs.ModeSticky))
	assert.Empty(t, fileExposures(link, false))
	require.NoError(t, os.Chmod(data, 0o757))
	assert.Equal(t, []string{data + " may be changed by everybody (mode 0757): chmod o-w"}, fileExposures(link, false))
	assert.Empty(t, fileExposures(filepath.Join(mount, "none"), true), "the folder is sticky, and there is no file")
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
	snapshot := put(t, dir, "index.snapshot", "")
	file := write(t, `listen:
  - {address: "tls://127.0.0.1:1", tokens: `+tokens+", tls: {cert: "+cert+", key: "+key+", client_ca: "+authority+`}}
  - {address: 127.0.0.1:2, tokens: `+digests+`}
router: {listen: {address: 127.0.0.1:3, tokens: `+tokens+`}, peers: ["http://127.0.0.1:4"], peer_token_file: `+peer+`}
backend: {memory: {snapshot: {path: `+snapshot+"}}}\n")
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
		for _, path := range []string{tokens, digests, cert, key, authority, peer, snapshot, file} {
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
	assert.Equal(t, strings.TrimPrefix(change, " ")+"\nbackend.memory.snapshot.path: index.snapshot"+change+"\nrouter.peer_token_file: peer"+change+"\nlisten[0].tokens: tokens.yaml"+change+
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
