package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestHoldersUsage(t *testing.T) {
	for _, test := range []struct{ line, stdin, want string }{
		{"", "", "--hashes-file or --tokens-file is required"},
		{"--hashes-file -", "", "standard input is empty: give at least one hash"},
		{"--hashes-file - --tokens-file -", "", "--hashes-file and --tokens-file: give one of them"},
		{"--hashes-file - --loadable --tokens -1", "", "--tokens -1 is negative"},
		{"--hashes-file - --tokens 5", "", "--tokens is of no use without --loadable and --hashes-file"},
		{"--tokens-file - --loadable --tokens 5", "", "--tokens is of no use without --loadable and --hashes-file"},
		{"--hashes-file - --salt x", "", "--salt is of no use without --tokens-file"},
		{"--hashes-file - --lora x", "", "--lora is of no use without --tokens-file"},
		{"--tokens-file - --lora-path x", "", "--lora-path needs --lora"},
		{"--hashes-file - --connect tcp://a:1", "", `--connect: "tcp://a:1" is no address of HTTP; use http://host:port or https://host:port`},
		{"--hashes-file - --connect http://a:1/query", "", "is no address of HTTP"},
		{"--hashes-file - --connect http://a:0", "", "has port 0"},
		{"--hashes-file - --tls-ca x", "", "--tls-ca is for a https:// address, and this is http://127.0.0.1:1"},
		{"--hashes-file - --timeout 0s", "", "--timeout is 0s, must be more than 0"},
		{"--hashes-file -", "abc", `standard input:1: 3 hex digits are not whole bytes`},
		{"--hashes-file no/such", "", "cannot read the hashes: "},
		{"--tokens-file -", "1 x", `standard input: "x" is no token id`},
		{"--pool a --hashes-file -", "", "unknown flag: --pool"},
		{"now", "", `unexpected argument "now"`},
	} {
		got := hitline(t, test.stdin, append([]string{"holders", "--connect", "127.0.0.1:1"}, strings.Fields(test.line)...)...)
		assert.Equal(t, exitUsage, got.code, "%s: %s", test.line, got.stderr)
		assert.Empty(t, got.stdout)
		assert.Contains(t, got.stderr, test.want)
	}
}

// Answers that are not as they should be exit with 1, late ones with 3. A redirect is not followed.
func TestHoldersReplies(t *testing.T) {
	for _, test := range []struct {
		status    int
		reply     string
		code      int
		out, want string
	}{
		{200, `{"instances": {"b": {"longest_matched": 64, "gpu": 0, "cpu": 0, "disk": 0, "dp": {"7": 64}, "media": {"RAM": 16, "predicted": 64}},
			"a\u001b": {"longest_matched": 64, "gpu": 48, "cpu": 0, "disk": 64, "dp": {"10": 64, "9": 32}}}}`, exitDone, `engine  tokens  DISK  GPU  RAM  predicted  ranks
a\x1b   64      64    48   0    0          9: 32, 10: 64
b       64      0     0    16   64         7: 64
`, ""},
		{200, `{"instances": {}, "loadable_tokens": 96}`, exitDone, "no engine has the first whole block; hitline router lists those that are followed\nthe store can load 96 tokens\n", ""},
		{200, `{"instances": {}, "unsure": {"b": ["stale", "incomplete"], "a": ["unchecked"]}}`, exitDone, "no engine has the first whole block; hitline router lists those that are followed\n" +
			"unsure: a (unchecked), b (stale, incomplete)\n", ""},
		{200, `{"instances": {}, "loadable_unknown": "no\u001b layout"}`, exitDone, "no engine has the first whole block; hitline router lists those that are followed\nwhat the store can load is unknown: no\\x1b layout\n", ""},
		{200, `{"instances": {"a": {"longest_matched": 16}}, "kv_hints": {"a": {"actions": []}}}`, exitDone,
			"engine  tokens  ranks\na       16      \nkv_hints to fetch from a: {\"actions\": []}\n", ""},
		{200, `x`, exitFailed, "", "bad reply: no JSON"},
		{200, `{"instances": {"a": {"dp": 1}}}`, exitFailed, "", "bad reply: instances.dp has another type: number"},
		{200, `{"instances": {}, "loadable_tokens": "many"}`, exitFailed, "", "bad reply: \"many\" is no number of tokens"},
		{503, `{"error": {"code": "busy", "message": "try\nagain"}}`, exitFailed, "", "refused by the server: try\\nagain (busy)\n"},
		{404, `page not found`, exitFailed, "", "refused by the server: 404 Not Found; is this router.listen?\n"},
		{302, ``, exitFailed, "", "refused by the server: 302 Found\n"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.reply)
		}))
		got := hitline(t, strings.Repeat("ab", 32), "holders", "--connect", s.URL, "--hashes-file", "-")
		s.Close()
		assert.Equal(t, test.code, got.code, "%s: %s", test.reply, got.stderr)
		assert.Equal(t, test.out, got.stdout, test.reply)
		assert.Contains(t, got.stderr, test.want)
		assert.NotContains(t, got.stderr, "client:")
	}
	mute := strings.TrimPrefix(listenAndReply(t, silent), "tcp://")
	got := hitline(t, "00", "holders", "--connect", mute, "--hashes-file", "-", "--timeout", "50ms")
	assert.Equal(t, exitNoConnection, got.code)
	assert.Equal(t, "hitline: http://"+mute+": no answer within 50ms\n", got.stderr)
}
