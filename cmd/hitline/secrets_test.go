package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
)

// Files that are broken around a token or a key are refused without it.
func TestBadFilesKeepSecrets(t *testing.T) {
	const token = "the-secret-token-of-ops"
	dir := t.TempDir()
	certtest.WriteFiles(dir, "server", certtest.NewCA("ca").Leaf("localhost"))
	key, err := os.ReadFile(filepath.Join(dir, "server.key"))
	require.NoError(t, err)
	digest := sha256.Sum256([]byte(token))
	secrets := []string{
		token, hex.EncodeToString([]byte(token)), base64.RawStdEncoding.EncodeToString([]byte(token)), hex.EncodeToString(digest[:]),
		strings.Split(string(key), "\n")[2], // the first line is that of every key
	}
	config := configFile(t, "listen: [{address: 'tls://127.0.0.1:0', tls: {cert: "+dir+"/server.crt, key: "+dir+"/server.key}, tokens: "+dir+"/tokens.yaml}]\n")
	check := func(want int, what string) {
		t.Helper()
		got := hitline(t, "", "serve", "--check", "--config", config)
		assert.Equal(t, want, got.code, what)
		for _, secret := range secrets {
			assert.NotContains(t, strings.ToLower(got.stdout+got.stderr), strings.ToLower(secret), what)
		}
	}
	entry := "tokens:\n  - {name: ops, token: " + token + ", allow: all}\n"
	for file, bad := range map[string][]string{
		"tokens.yaml": {
			entry + "  - {name: again, token: " + token + ", allow: all}\n", // twice
			entry + "  " + token, // no YAML
			entry + token + ": x\n",
		},
		"server.key": {
			strings.Replace(string(key), "\n", "\n!", 2), string(key[:len(key)/2]),
			string(bytes.ReplaceAll(key, []byte("-----"), nil)), strings.ReplaceAll(string(key), "PRIVATE", "PUBLIC"),
		},
		"server.crt": {string(key)},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tokens.yaml"), []byte(entry), 0o600))
		check(exitDone, "all files are right")
		path := filepath.Join(dir, file)
		right, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, text := range bad {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			check(exitUsage, text)
		}
		require.NoError(t, os.WriteFile(path, right, 0o600))
	}
}
