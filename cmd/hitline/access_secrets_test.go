package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// secrets are texts that must not be in any output, by what they are.
type secrets map[string]string

// addToken adds a token in the forms in which it could be printed.
func (s secrets) addToken(token string) {
	digest := sha256.Sum256([]byte(token))
	s["token "+token] = token
	for form, bytes := range map[string][]byte{"token ": []byte(token), "digest of ": digest[:]} {
		s[form+token+" in hex"] = hex.EncodeToString(bytes)
		s[form+token+" in base64"] = base64.RawStdEncoding.EncodeToString(bytes)
		s[form+token+" as numbers"] = strings.Trim(fmt.Sprint(bytes), "[]")
	}
}

// check fails the test if a text has a secret.
func (s secrets) check(t *testing.T, where, text string) {
	t.Helper()
	for what, secret := range s {
		if at := strings.Index(strings.ToLower(text), strings.ToLower(secret)); at >= 0 {
			t.Errorf("%s has the %s: %q", where, what, text[max(0, at-200):min(len(text), at+len(secret)+50)])
		}
	}
}

// tableSecrets returns the secrets of a server of the table.
func tableSecrets(t *testing.T, files *certificates) secrets {
	t.Helper()
	all := secrets{}
	for _, row := range tableRows {
		if row.token != "" {
			all.addToken(tokenOf(row.token))
		}
	}
	keys, err := filepath.Glob(filepath.Join(files.dir, "*.key"))
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		text, err := os.ReadFile(key)
		require.NoError(t, err)
		block, _ := pem.Decode(text)
		all["key "+key+" in hex"] = hex.EncodeToString(block.Bytes[40:60])
		for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			if !strings.Contains(line, "-----") && i > 1 { // all first lines are equal
				all[fmt.Sprintf("line %d of %s", i, key)] = line
			}
		}
	}
	return all
}

// No token, key or password is in the log, on a page, in stat, in the printed configuration, or in
// an error of serve or of a command.
func TestSecretsAreNotPrinted(t *testing.T) {
	const password = "the-secret-password-of-redis"
	redis := storetest.StartRedis(t, "--requirepass", password)
	config := strings.NewReplacer("{vllm: 0.33.0}", "{vllm: 0.33.0, model_name: own}",
		"{memory: {max_bytes: 256MiB}}", "{redis: {url: 'redis://:"+password+"@"+redis.Addr+"', timeout: 5s}}").Replace(tableConfig)
	s := startTable(t, config)
	all := tableSecrets(t, s.files)
	all["password"] = password

	job := pythonJob{Unix: s.address["unix"], Pools: map[string]int64{}}
	for _, row := range tableRows {
		p := s.peer(row)
		rawReplies(p)
		clientOutcome(row, p)
		job.Peers = append(job.Peers, s.pythonPeer("python", row, p))
		if p.tls == nil && !strings.HasPrefix(row.want, "closed") {
			job.Peers = append(job.Peers, s.pythonPeer("zmq", row, p))
		}
	}
	t.Run("python", func(t *testing.T) {
		_, log := job.run(t, storetest.PyzmqPython(t))
		require.NotEmpty(t, log)
		all.check(t, "the log of the Python client", log)
	})

	t.Run("commands", func(t *testing.T) {
		for i, token := range []string{"ops", "wrong", "expired", "llama", "wrong wrong"} {
			file := filepath.Join(t.TempDir(), "token")
			replaceFile(t, file, strings.ReplaceAll(tokenOf(token), " ", "\n\x00")+"\n")
			for j, listener := range []string{"tokens", "public tokens", "loopback", "tls tokens", "mutual names"} {
				for _, command := range []string{"ping", "stat", "reset --yes", "doctor --pool llama"} {
					args := append(strings.Fields(command), "--connect", s.address[listener], "--token-file", file, "--timeout", "10s")
					if strings.Contains(s.address[listener], "tls:") {
						args = append(args, "--tls-ca", s.files.caFile)
						if i != j {
							args = append(args, "--tls-cert", s.files.dir+"/engine.crt", "--tls-key", s.files.dir+"/engine.key")
						}
					}
					got := hitline(t, "", args...)
					all.check(t, strings.Join(args, " "), got.stdout+got.stderr)
				}
			}
		}
	})

	for _, page := range []string{"/metrics", "/healthz", "/readyz", "/", "/status", "/debug/pprof/cmdline", "/debug/vars", "/config"} {
		for _, token := range []string{"wrong", "ops"} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.metrics+page, nil)
			require.NoError(t, err)
			request.Header.Set("Authorization", "Bearer "+tokenOf(token))
			reply, err := http.DefaultClient.Do(request)
			require.NoError(t, err)
			body, err := io.ReadAll(reply.Body)
			require.NoError(t, err)
			reply.Body.Close()
			all.check(t, page, string(body))
			if page == "/status" {
				assert.Equal(t, token == "ops", strings.Contains(string(body), `"refusals":[{`), "what is checked")
			}
		}
	}
	for _, pool := range []string{"", "llama"} {
		doc, err := s.pools[pool].Stat(t.Context())
		require.NoError(t, err)
		all.check(t, "stat", string(doc))
	}
	for _, options := range [][]string{nil, {"--explain"}, {"--explain", "--json"}} {
		got := hitline(t, "", append([]string{"serve", "--check", "--config", s.config}, options...)...)
		require.Equal(t, exitDone, got.code, got.stderr)
		require.Contains(t, got.stdout, "tokens.yaml")
		all.check(t, "serve --check", got.stdout+got.stderr)
	}

	checkBadFiles(t, s, all)
	require.NotEmpty(t, s.log.String())
	all.check(t, "the log", s.log.String())
}

// checkBadFiles reloads files that are broken around their secrets, and has --check read them.
func checkBadFiles(t *testing.T, s *tableServer, all secrets) {
	token := tokenOf("ops")
	entry := "tokens:\n  - {name: ops, token: " + token + ", allow: all}\n"
	key, err := os.ReadFile(s.files.dir + "/server.key")
	require.NoError(t, err)
	config, err := os.ReadFile(s.config)
	require.NoError(t, err)
	for _, url := range []string{"redis://:%s@[::1", "redis://:%s@host:port", "redis://:%%zz%s@host:1", "%s://host", "redis://host:1?%[1]s=%[1]s", "redis://host:1?db=%s"} {
		url = fmt.Sprintf(url, all["password"])
		text := regexp.MustCompile(`url: '[^']*'`).ReplaceAllLiteralString(string(config), "url: '"+url+"'")
		got := hitline(t, "", "serve", "--check", "--config", configFile(t, text))
		assert.Equal(t, exitUsage, got.code, url)
		all.check(t, "serve --check of a bad URL", got.stdout+got.stderr)
	}
	for file, texts := range map[string][]string{
		"tokens.yaml": {
			entry + "  - {name: again, token: " + token + ", allow: all}\n", // twice
			entry + "  " + token, // no YAML
			entry + token + ": x\n",
			"tokens:\n  - {name: ops, tokn: " + token + "}\n",
			"tokens:\n  - {name: ops, token: [" + token + "], allow: all}\n",
			"tokens:\n  - {name: ops, token: {" + token + ": x}, allow: all}\n",
			"tokens:\n  - {name: ops, token: '" + token + ", allow: all}\n",
			"tokens:\n  - {name: ops, token: '" + token + " x', allow: all}\n",
			"tokens:\n  - {name: ops, token: '" + strings.Repeat(token, 20) + "', allow: all}\n",
			"tokens:\n  - {name: ops, sha256: " + token + ", allow: all}\n",
			"tokens:\n  - {name: ops, allow: " + token + "}\n",
			"tokens:\n  - {name: ops, token: " + token + ", allow: [" + token + "]}\n",
			"tokens:\n  - {name: ops, token: " + token + ", expires: " + token + ", allow: all}\n",
			"tokens:\n  - {name: ops, token: " + token + ", certificate: " + token + ", allow: all}\n",
			"tokens:\n  - {name: ops, " + token + "}\n",
			"tokens:\n  - " + token + "\n",
			"tokens: " + token + "\n",
			"tokens: &x [" + token + ", *" + token + "]\n",
			"tokens: !" + token + " []\n",
			token,
			`{"tokens":[{"name":"ops","token":"` + token + `"}]`,
		},
		"server.key": {
			strings.Replace(string(key), "\n", "\n!", 2), string(key[:len(key)/2]),
			string(bytes.ReplaceAll(key, []byte("-----"), nil)), strings.ReplaceAll(string(key), "PRIVATE", "PUBLIC"),
		},
		"server.crt": {string(key)}, "ca.crt": {string(key)},
	} {
		path := filepath.Join(s.files.dir, file)
		good, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, text := range texts {
			replaceFile(t, path, text)
			s.reload("", "not reloaded", "")
			got := hitline(t, "", "serve", "--check", "--config", s.config)
			assert.Equal(t, exitUsage, got.code, text)
			all.check(t, "serve --check of a bad file", got.stdout+got.stderr)
		}
		replaceFile(t, path, string(good))
		s.reload("", "reloaded", "")
	}
}
