package main

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/fakeserver"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// theToken is the one that serveTokens takes.
const theToken = "correct-horse-battery"

// serveTokens serves a connection: auth by theToken, and then ping. It refuses everything else.
func serveTokens(conn net.Conn) {
	known := false
	fakeserver.Answer(conn, func(frames [][]byte) []byte {
		switch request := string(frames[0]); {
		case request == "auth":
			if known = string(frames[1]) == theToken; !known {
				return refused(api.RefusalNotAuthenticated, request, "no such token")
			}
		case request != "ping" || !known:
			return refused(api.RefusalNotAllowed, request, "not allowed: "+request)
		}
		return []byte(replyPing)
	})
}

func refused(kind, request, reason string) []byte {
	details, _ := json.Marshal(api.Refusal{Refusal: kind, Request: request})
	return netproto.AppendRefusal(nil, nil, netproto.StatusFailed, reason, details)
}

func writeToken(t *testing.T, token string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(token+"\n"), 0o600))
	return path
}

// A command sends the token of the flag, or of the variable, and tells what it may not do.
func TestClientToken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	fakeserver.Serve(t, listener, serveTokens)
	address := "tcp://" + listener.Addr().String()
	path, wrong := writeToken(t, theToken), writeToken(t, "wrong-horse-battery")

	got := hitline(t, "", "ping", "--connect", address, "--token-file", path)
	assert.Equal(t, exitDone, got.code, got.stderr)
	assert.Empty(t, got.stderr, "loopback needs no warning")

	got = hitline(t, "", "ping", "--connect", address)
	assert.Equal(t, result{exitFailed, "", "hitline: " + address + ": refused by the server: not allowed: ping; if a token allows it, give --token-file\n"}, got)
	got = hitline(t, "", "ping", "--connect", address, "--token-file", wrong)
	assert.Equal(t, result{exitFailed, "", "hitline: " + address + ": refused by the server: no such token\n"}, got)
	got = hitline(t, "", "stat", "--connect", address, "--token-file", path)
	assert.Equal(t, result{exitFailed, "", "hitline: " + address + ": refused by the server: not allowed: stat\n"}, got)

	t.Setenv(api.TokenFileVariable, path)
	assert.Equal(t, exitDone, hitline(t, "", "ping", "--connect", address).code)
	assert.Equal(t, exitFailed, hitline(t, "", "ping", "--connect", address, "--token-file", wrong).code, "the flag goes first")
	assert.Equal(t, exitFailed, hitline(t, "", "ping", "--connect", address, "--token-file=").code, "none")
}

// A token that cannot be read is an error that names the flag or the variable, and the file.
func TestClientTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	got := hitline(t, "", "ping", "--token-file", path)
	assert.Equal(t, result{exitUsage, "", "hitline: --token-file: token file: stat " + path + ": no such file or directory\n"}, got)
	path = writeToken(t, strings.Repeat("secret", 99))
	t.Setenv(api.TokenFileVariable, path)
	got = hitline(t, "", "ping")
	assert.Equal(t, result{exitUsage, "", "hitline: HITLINE_TOKEN_FILE: token file " + path + ": no token: the first line is over 255 bytes\n"}, got)
}

// A token in plain text beyond this machine is worth one line.
func TestClientTokenWarning(t *testing.T) {
	path := writeToken(t, theToken)
	for address, warns := range map[string]bool{
		"tcp://192.0.2.1:7557": true, "cache.test:7557": true, "[2001:db8::1]:7557": true,
		"tls://192.0.2.1:7557": false, "tcp://127.0.0.1:1": false, "tcp://127.8.8.8:1": false, "[::1]:1": false,
		"localhost:1": false, "ipc:///nowhere/socket": false,
	} {
		got := hitline(t, "", "ping", "--timeout", "1ns", "--connect", address, "--token-file", path)
		assert.Equal(t, exitNoConnection, got.code, got.stderr)
		want := 0
		if warns {
			want = 1
		}
		assert.Equal(t, want, strings.Count(got.stderr, "hitline: warning: the token goes to "+address+" in plain text"), got.stderr)
		assert.NotContains(t, got.stderr, theToken)
		assert.NotContains(t, hitline(t, "", "ping", "--timeout", "1ns", "--connect", address).stderr, "warning")
	}
}

// Over HTTP it is the same.
func TestHoldersTokenWarning(t *testing.T) {
	path := writeToken(t, theToken)
	for address, want := range map[string]int{"http://192.0.2.1:8557": 1, "https://192.0.2.1:8557": 0, "http://127.0.0.1:1": 0} {
		got := hitline(t, "0000000000000001\n", "holders", "--hashes-file", "-", "--timeout", "1ns", "--connect", address, "--token-file", path)
		assert.Equal(t, want, strings.Count(got.stderr, "hitline: warning: the token goes to "+address+" in plain text"), got.stderr)
		assert.NotContains(t, got.stderr, theToken)
	}
}

// A command speaks TLS to a tls:// address, with the CA, certificate and name that it is given.
func TestClientTLS(t *testing.T) {
	dir := t.TempDir()
	ca, clients := certtest.NewCA("servers"), certtest.NewCA("clients")
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{ca.Leaf("server.test")}, ClientCAs: clients.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	})
	require.NoError(t, err)
	fakeserver.Serve(t, listener, serveTokens)
	address := "tls://" + listener.Addr().String()
	caFile := ca.WriteFile(filepath.Join(dir, "ca.crt"))
	cert, key := certtest.WriteFiles(dir, "client", clients.Leaf("engine.test"))
	t.Setenv(api.TokenFileVariable, writeToken(t, theToken))
	ping := func(args ...string) result {
		return hitline(t, "", append([]string{"ping", "--connect", address}, args...)...)
	}

	got := ping("--tls-ca", caFile, "--tls-cert", cert, "--tls-key", key, "--tls-server-name", "server.test")
	assert.Equal(t, exitDone, got.code, got.stderr)
	assert.Empty(t, got.stderr)
	for _, wrong := range [][]string{
		{"--tls-ca", caFile, "--tls-cert", cert, "--tls-key", key},       // not the name of the address
		{"--tls-cert", cert, "--tls-key", key},                           // not a CA of the system
		{"--tls-ca", caFile, "--tls-server-name", "server.test"},         // no certificate
		{"--tls-ca", clients.WriteFile(filepath.Join(dir, "other.crt"))}, // another CA
	} {
		assert.Equal(t, exitNoConnection, ping(wrong...).code, wrong)
	}
	for _, test := range []struct{ args, want string }{
		{"--tls-ca " + dir + "/none", "--tls-ca: open " + dir + "/none: no such file or directory"},
		{"--tls-ca " + key, "--tls-ca: no certificate in PEM in " + key},
		{"--tls-cert " + cert + " --tls-key " + cert, "--tls-cert " + cert + " and its key " + cert + ": tls: "},
		{"--tls-cert " + cert + " --tls-key " + dir + "/none", "--tls-cert " + cert + " and its key " + dir + "/none: no such file"},
	} {
		got := ping(strings.Fields(test.args)...)
		assert.Equal(t, exitUsage, got.code)
		assert.Contains(t, got.stderr, "hitline: "+test.want)
		assert.Equal(t, 1, strings.Count(got.stderr, "\n"), got.stderr)
	}

	t.Setenv("HITLINE_TLS_CA", caFile)
	t.Setenv("HITLINE_TLS_CERT", cert)
	t.Setenv("HITLINE_TLS_KEY", key)
	assert.Equal(t, exitDone, ping("--tls-server-name", "server.test").code)
	assert.Equal(t, exitNoConnection, ping("--tls-server-name", "other.test").code)

	plain := hitline(t, "", "ping", "--token-file=", "--connect", listenAndReply(t, replyPing))
	assert.Equal(t, exitDone, plain.code, "the variables of TLS are of no concern without it: "+plain.stderr)
	t.Setenv("HITLINE_TLS_KEY", "")
	assert.Contains(t, ping().stderr, "HITLINE_TLS_CERT needs the key too: give --tls-key or HITLINE_TLS_KEY")
}

func TestToken(t *testing.T) {
	got := hitline(t, "", "token")
	assert.Equal(t, exitDone, got.code)
	assert.Regexp(t, `^[A-Za-z0-9_-]{43}\n$`, got.stdout)
	assert.NotEqual(t, got.stdout, hitline(t, "", "token").stdout)
	assert.Regexp(t, `^\{"token":"[A-Za-z0-9_-]{43}"\}\n$`, hitline(t, "", "token", "--json").stdout)

	token := strings.TrimSpace(got.stdout)
	path := writeToken(t, token)
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(token)))
	for _, got := range []result{hitline(t, "", "token", "--digest", path), hitline(t, " "+token+"\n", "token", "--digest", "-")} {
		assert.Equal(t, exitDone, got.code, got.stderr)
		assert.Equal(t, sum+"\n", got.stdout)
	}
	assert.Equal(t, `{"sha256":"`+sum+"\"}\n", hitline(t, "", "token", "--json", "--digest", path).stdout)
	for stdin, want := range map[string]string{
		"":                                   "no token: it is empty",
		"\nabc":                              "no token: the first line is empty",
		"-----BEGIN CERTIFICATE-----\nabc\n": "the token has white space or control characters; name a file with a token in its first line",
		"short\n":                            "the token has 5 bytes, and a tokens file takes those of 16 or more",
	} {
		got := hitline(t, stdin, "token", "--digest", "-")
		assert.Equal(t, result{exitUsage, "", "hitline: " + want + "\n"}, got)
	}
}
