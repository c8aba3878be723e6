package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestHoldersUsage(t *testing.T) {
	for _, test := range []struct{ line, stdin, want string }{
		{"", "", "--hashes-file or --tokens-file is required"},
		{"--hashes-file - --tokens-file -", "", "--hashes-file and --tokens-file: give one of them"},
		{"--hashes-file - --limit -1", "", "--limit -1 is negative"},
		{"--hashes-file - --loadable --tokens -1", "", "--tokens -1 is negative"},
		{"--hashes-file - --tokens 5", "", "--tokens is of no use without --loadable"},
		{"--hashes-file - --salt x", "", "--salt is of no use without --tokens-file"},
		{"--hashes-file - --algorithm xxhash", "", "--algorithm is of no use without --tokens-file"},
		{"--hashes-file -", "abc", `standard input:1: 3 hex digits are not whole bytes`},
		{"--hashes-file no/such", "", "cannot read the hashes: "},
		{"--tokens-file -", "1 x", `standard input: "x" is no token id`},
		{"--tokens-file - --engine trt", "", "must be vllm or sglang"},
		{"--tokens-file - --engine sglang --seed 0", "", "--seed is for vLLM alone"},
		{"--tokens-file - --block-size 0", "", "block size 0, want 1 to"},
		{"--tokens-file - --vllm 0.24.0", "", "draws the seed of its hashes at random"},
		{"--pool a --hashes-file -", "", "unknown flag: --pool"},
		{"now", "", `unexpected argument "now"`},
	} {
		got := hitline(t, test.stdin, append([]string{"holders", "--connect", "127.0.0.1:1"}, strings.Fields(test.line)...)...)
		assert.Equal(t, exitUsage, got.code, "%s: %s", test.line, got.stderr)
		assert.Empty(t, got.stdout)
		assert.Contains(t, got.stderr, test.want)
	}
}
