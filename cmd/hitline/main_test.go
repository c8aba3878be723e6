package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/cmd/internal/connectflags"
	"github.com/hitline/hitline/internal/buildinfo"
)

// asProgram makes the test binary run main, for tests that need a process of their own.
const asProgram = "HITLINE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Unsetenv(connectflags.AddressVariable) // the developer's server is not asked
	// The network library starts worker pools when the program starts.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// result is the exit code and the output of a command line.
type result struct {
	code           int
	stdout, stderr string
}

// hitline runs a command line in process.
func hitline(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), args, strings.NewReader(stdin), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// Wrong usage exits with 2 and prints one line and a hint.
func TestUsageErrors(t *testing.T) {
	for _, test := range []struct{ line, want, hint string }{
		{"servo", `unknown command "servo"; did you mean serve?`, "hitline"},
		{"stat --conect", "unknown flag: --conect; did you mean --connect?", "hitline stat"},
		{"serve hitline.yaml", `unexpected argument "hitline.yaml"; give it as --config`, "hitline serve"},
		{"ping a b", `unexpected argument "b"`, "hitline ping"},
		{"ping a --connect b", "a and --connect: give one address", "hitline ping"},
		{"stat 127.0.0.1:7557", `unexpected argument "127.0.0.1:7557"; give it as --connect`, "hitline stat"},
		{"version a:1", `unexpected argument "a:1"`, "hitline version"},
		{"ping --timeout soon", `invalid argument "soon" for "--timeout" flag: write seconds, such as 10, or a duration, such as 500ms or 2m`, "hitline ping"},
		{"events --batches -1 tcp://127.0.0.1:1", "--batches -1 is negative", "hitline events"},
		{"ping --timeout 0s", "--timeout is 0s, must be more than 0", "hitline ping"},
		{"ping --connect ::1", `--connect: "::1": too many colons in address; write tcp://host:port, an IPv6 address in brackets`, "hitline ping"},
		{"stat --connect tcp://a:0", `--connect: "tcp://a:0" has port 0; give the port of the server, 1 to 65535`, "hitline stat"},
		{"reset --connect ipc://x", `--connect: "ipc://x": not the absolute path of a socket; write ipc:///path`, "hitline reset"},
		{"reset", "--yes is required to forget all blocks of the server's own pool at tcp://127.0.0.1:7557", "hitline reset"},
		{"reset --tp-rank 3 --pool big", `--yes is required to forget all blocks of tp-rank 3 of pool "big" at tcp://127.0.0.1:7557`, "hitline reset"},
		{"reset --tp-rank 65535", "--tp-rank 65535: ranks are below it", "hitline reset"},
		{"lookup --hashes-file -", "--tokens is required", "hitline lookup"},
		{"lookup --tokens 1", "--hashes-file is required", "hitline lookup"},
		{"lookup", "--tokens and --hashes-file are required", "hitline lookup"},
		{"lookup --tokens 4294967296", `invalid argument "4294967296" for "--tokens" flag: the number is out of range`, "hitline lookup"},
		{"store", "--hashes-file is required", "hitline store"},
		{"store --group 65536", `invalid argument "65536" for "--group" flag: the number is out of range`, "hitline store"},
		{"token now", `unexpected argument "now"`, "hitline token"},
		{"token --digest=", "--digest names no file", "hitline token"},
		{"ping --tls-ca ca.pem", "--tls-ca is for a tls:// address, and this is tcp://127.0.0.1:7557", "hitline ping"},
		{"ping --connect ipc:///x --tls-server-name a", "--tls-server-name is for a tls:// address, and this is ipc:///x", "hitline ping"},
		{"ping --connect tls://a:1 --tls-cert c.pem", "--tls-cert needs the key too: give --tls-key or HITLINE_TLS_KEY", "hitline ping"},
		{"ping --connect tls://a:1 --tls-key k.pem", "--tls-key needs the certificate too: give --tls-cert or HITLINE_TLS_CERT", "hitline ping"},
		{"serve tcp://127.0.0.1:7557", `unexpected argument "tcp://127.0.0.1:7557"; give it as --listen`, "hitline serve"},
		{"serve --config=", "--config names no file", "hitline serve"},
		{"init a b", `unexpected argument "b"`, "hitline init"},
		{"init - --for etcd", `unknown use "etcd"; --for is one of vllm-mooncake, router, memory`, "hitline init"},
	} {
		t.Run(test.line, func(t *testing.T) {
			got := hitline(t, "", strings.Fields(test.line)...)
			assert.Equal(t, result{exitUsage, "", "hitline: " + test.want + "\nhint: " + test.hint + " --help\n"}, got)
		})
	}
}

// A misspelt variable is refused by every command, not ignored.
func TestUnknownVariable(t *testing.T) {
	t.Setenv("HITLINE_ADDRESSES", "tcp://127.0.0.1:1")
	for _, line := range []string{"ping", "serve --check", "hash", "token", "doctor"} {
		got := hitline(t, "1", strings.Fields(line)...)
		assert.Equal(t, result{exitUsage, "", "hitline: HITLINE_ADDRESSES: no such variable; did you mean HITLINE_ADDRESS?\n"}, got, line)
	}
	assert.Equal(t, exitDone, hitline(t, "", "help").code)
}

// An address without a port has that of servers, and one where nothing listens is said with what to do.
func TestNoServer(t *testing.T) {
	for address, want := range map[string]string{
		"localhost:1": "no server at localhost:1 (connection refused); hitline serve starts one",
		"tls://[::1]": "no server at tls://[::1]:7557 (connection refused); hitline serve starts one",
		"ipc:///none": "no server at ipc:///none (no such file or directory); hitline serve starts one",
	} {
		assert.Equal(t, result{exitNoConnection, "", "hitline: " + want + "\n"}, hitline(t, "", "ping", address), address)
	}
	got := hitline(t, "00", "holders", "--hashes-file", "-", "--connect", "127.0.0.1:1")
	assert.Equal(t, result{exitNoConnection, "", "hitline: no server at http://127.0.0.1:1 (connection refused); hitline serve with router.listen starts one\n"}, got)
}

// A certificate that cannot be checked is said with the flag that names its authority, by both kinds of client.
func TestUnknownAuthority(t *testing.T) {
	listener := tlsListener(t)
	for address, line := range map[string]string{"tls://" + listener: "ping", "https://" + listener: "holders --hashes-file -"} {
		got := hitline(t, "00", append(strings.Fields(line), "--connect", address)...)
		want := "hitline: " + address + ": the server's certificate is of an unknown authority; give the file of its authorities as --tls-ca\n"
		assert.Equal(t, result{exitNoConnection, "", want}, got)
	}
}

func TestVersion(t *testing.T) {
	got := hitline(t, "", "version")
	assert.Equal(t, exitDone, got.code)
	assert.Regexp(t, `^hitline \S+\n(commit [^\n]+\n)?go go1\.\S+ \S+/\S+\nkernel \w+, of (\w+, )*generic\n$`, got.stdout)
	assert.Empty(t, got.stderr)

	got = hitline(t, "", "version", "--json")
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &fields))
	assert.Equal(t, 1, strings.Count(got.stdout, "\n"))
	for _, key := range []string{"version", "go", "platform", "kernel", "kernels"} {
		assert.NotEmpty(t, fields[key], key)
	}
	for _, key := range []string{"commit", "time", "modified"} {
		assert.Contains(t, fields, key)
	}
}

func TestVersionOfTheBuild(t *testing.T) {
	b := buildinfo.Read()
	assert.NotEmpty(t, b.Version)
	assert.Contains(t, hitline(t, "", "version").stdout, b.Lines("hitline")+"\nkernel ")
	assert.Equal(t, result{exitDone, "hitline version " + b.Version + "\n", ""}, hitline(t, "", "--version"))
}

func TestKernelOfTheEnvironment(t *testing.T) {
	t.Setenv("HITLINE_KERNEL", "sse9")
	for _, line := range []string{"version", "serve --check"} {
		got := hitline(t, "", strings.Fields(line)...)
		assert.Equal(t, exitUsage, got.code, line)
		assert.Empty(t, got.stdout, line)
		assert.Contains(t, got.stderr, "sse9", line)
		assert.Equal(t, 1, strings.Count(got.stderr, "\n"), line)
	}
}
