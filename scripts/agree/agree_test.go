//go:build linux

package main

import (
	"bytes"
	"io"
	"net"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// The generator has traps for wrong use of memory and for undefined behavior. It sees wrong answers
// of a server that answers each request alike.
func TestGenerator(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		storetest.SkipOrFail(t, "no gcc on this machine")
	}
	generator, err := buildGenerator(t.Context(), t.TempDir(), "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	require.NoError(t, err)
	const done, hit = "\x00\x01\x01", "\x00\x04\x00\x00\x04\x00"
	for lookup, code := range map[string]int{
		hit: 0, "\x00\x04\x00\x00\x03\xf0": 1, hit + hit: 1, done: 1, "\x01" + hit[1:]: 1, hit[:5]: 3, "": 3,
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go answerAll(ln, done, lookup)
		text, err := exec.CommandContext(t.Context(), generator, "64", "640", "2", "0.05", ln.Addr().String()).CombinedOutput()
		ln.Close()
		if code == 0 {
			require.NoError(t, err, "%s", text)
			assert.Equal(t, 2, bytes.Count(text, []byte("\n")), "%s", text)
			continue
		}
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%q", lookup)
		assert.Equal(t, code, exit.ExitCode(), "%q: %s", lookup, text)
	}
}

// answerAll serves one connection: it answers a reset, ten stores of 64 hashes, and lookups. It closes
// the connection behind an answer that is too short.
func answerAll(ln net.Listener, done, hit string) {
	c, err := ln.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	size, answer := int64(7), done
	for i := 0; ; i++ {
		if _, err := io.CopyN(io.Discard, c, size); err != nil {
			return
		}
		if _, err := io.WriteString(c, answer); err != nil || len(answer) < len(done) || len(answer) == 5 {
			return
		}
		if size = 28 + 64*32; i >= 10 {
			answer, size = hit, 27+64*32
		}
	}
}

// All of it with real programs. No verdict hangs on what is measured.
func TestPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("builds hitline")
	}
	bin := t.TempDir() + "/"
	text, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/hitline", ".").CombinedOutput()
	require.NoError(t, err, "%s", text)
	text, err = exec.CommandContext(t.Context(), bin+"agree", "--rounds", "2", "--seconds", "0.1", "--entries", "1000",
		"--hashes", "1,8192", "old="+bin+"hitline", "new="+bin+"hitline").Output()
	require.NoError(t, err)
	for _, row := range []string{`old +1 .* 1 +1 to 1`, `new +1 .* to `, `old +8,192 .* 1 +1 to 1`, `new +8,192 .* to `} {
		assert.Regexp(t, row, string(text))
	}
	require.ErrorContains(t, run(t.Context(), []string{"hitline"}, io.Discard, io.Discard), "NAME=PATH")
}
