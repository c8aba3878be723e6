package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
)

// The hashes of package blockhash's tests, which Python's pickle and hashlib have printed.
const (
	vllmHashes   = "52a7f141c60918f65779927090482b5a24adbe68c8613a211a1eb4e3edd9361a\nbee96bce54f5fcaba04c4a3fc2491b30b48e29dbbd38a327d41bc1f76b956dde\n"
	sglangHashes = "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72\n4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6\n"
)

func TestHash(t *testing.T) {
	const nine = "1 2 3 4\n5\t6 7 8 9\n"
	for _, test := range []struct{ line, stdin, want string }{
		{"--block-size 4", nine, vllmHashes},
		{"--block-size 4", "\n[1,2,3, 4,5,6,7,8]\n", vllmHashes},
		{"--block-size 4", "\ufeff[1,2,3,4,5,6,7,8]", vllmHashes},
		{"--block-size 4", `{"model": "llama", "token_ids": [1,2,3,4,5,6,7,8]}`, vllmHashes}, // the body of a query
		{"--block-size 4 --short", nine, "1a1eb4e3edd9361a\nd41bc1f76b956dde\n"},
		{"--block-size 4 --seed vllm-none-hash", nine, vllmHashes},
		{"--block-size 4 --seed vllm-none-hash --vllm 0.24.0", nine, vllmHashes},
		{"--block-size 4 --integers", nine, "1882140585328457242\n15284023028817948126\n"},
		{"--engine sglang --block-size 4 --integers", nine, "-3488128144981237669\n5674439469042975057\n"},
		{"--engine sglang --block-size 4", nine, sglangHashes},
		{"--engine sglang --block-size 4 --short", nine, "cf97adeedb59e05b\n4ebfa8a1f3c34151\n"},
		{"--json", nine, `{"engine":"vllm","release":"` + coordinator.NewestRelease() + `","algorithm":"sha256","block_size":16,"num_tokens":9,"hashes":[]}` + "\n"},
		{"--json --engine sglang --short", "[1]", `{"engine":"sglang","block_size":1,"num_tokens":1,"hashes":["67abdd721024f0ff"]}` + "\n"},
	} {
		got := hitline(t, test.stdin, append([]string{"hash"}, strings.Fields(test.line)...)...)
		note := ""
		if !strings.Contains(test.line, "--engine") && !strings.Contains(test.line, "--json") && !strings.Contains(test.line, "--vllm") {
			note = "hitline: hashed as vLLM " + coordinator.NewestRelease() + " does, the default; --vllm names another release\n"
		}
		assert.Equal(t, result{exitDone, test.want, note}, got, test.line)
	}
}

// Without a whole block there are no hashes, and a line says so.
func TestHashOfLessThanABlock(t *testing.T) {
	assert.Equal(t, result{exitDone, "", "hitline: no whole block of 16 tokens: there are 9\n"}, hitline(t, "1 2 3 4 5 6 7 8 9", "hash", "--vllm", coordinator.NewestRelease()))
	assert.Equal(t, result{exitDone, "", "hitline: no whole block of 1 token: there are 0\n"}, hitline(t, "[]", "hash", "--engine", "sglang"))
}

// Each of these options gives other hashes than all others.
func TestHashOptions(t *testing.T) {
	seen := map[string]string{}
	for _, line := range []string{
		"", "--algorithm sha256_cbor", "--seed 0", "--seed=", "--salt s", "--lookahead 1", "--vllm 0.30.0 --lora a",
		"--lora a --lora-path b", "--lora a --lora-path c", "--algorithm xxhash --seed 0", "--algorithm xxhash_cbor --seed 0",
		"--integers", "--engine sglang --integers", "--engine sglang --bigrams", "--engine sglang --dynamo --salt s --short",
		"--engine sglang", "--engine sglang --salt s", "--engine sglang --salt s --short", "--short",
	} {
		got := hitline(t, "1 2 3 4 5 6", append([]string{"hash", "--block-size", "4"}, strings.Fields(line)...)...)
		require.Equal(t, exitDone, got.code, got.stderr)
		assert.Equal(t, 1, strings.Count(got.stdout, "\n"), line)
		assert.Empty(t, seen[got.stdout], line)
		seen[got.stdout] = line + " has the same hash"
	}
}

func TestHashErrors(t *testing.T) {
	for _, test := range []struct{ line, stdin, want string }{
		{"", "1 2 x", `standard input: "x" is no token id`},
		{"", "1,2", `standard input: "1,2" is no token id`},
		{"", "99999999999999999999", `is no token id`},
		{"", "1 2 -3", `standard input: -3 at position 2 is no token id; ids are 0 or more`},
		{"", "[-3]", `standard input: -3 at position 0 is no token id; ids are 0 or more`},
		{"", "[1, 2", "not a JSON array of token ids"},
		{"", "[1.5]", "not a JSON array of token ids: byte 4 ends a number 1.5; write whole numbers, such as [1, 2]"},
		{"", "[1, null]", "null is in it"},
		{"", " \n", "standard input: is empty; give token ids, as a JSON array or with white space between them\n"},
		{"", `{"tokens": [1]}`, "a JSON object without token_ids; write {\"token_ids\": [1, 2]}, or the ids alone\n"},
		{"", `{"token_ids": null}`, "a JSON object without token_ids"},
		{"", `{"token_ids": [1.5]}`, "not a JSON array of token ids"},
		{"", `{"token_ids": [1]`, "not a JSON object: "},
		{"", `{"token_ids": [1], "cache_salt": "s"}`, "cache_salt is not read from a file; leave it out, and give it as a flag: see --help\n"},
		{"--tokens-file " + os.TempDir(), "", "cannot read the token ids: " + os.TempDir() + " is a directory; name a file, or - for standard input\n"},
		{"--engine sglang", "1 -1", "-1 at position 1 is no token id"},
		{"--engine lmcache", "", "must be vllm or sglang"},
		{"--engine sglang --lora a", "", "--lora is for vLLM alone"},
		{"--bigrams", "", "--bigrams is for SGLang alone"},
		{"--short --integers", "", "--short and --integers: give one of them"},
		{"--engine sglang --block-size 0", "", "page size 0, want 1 to"},
		{"--block-size 0", "", "block size 0, want 1 to"},
		{"--vllm " + conformance.UnknownRelease, "", `unknown vLLM release "` + conformance.UnknownRelease + `", known are 0.24.0, `},
		{"--vllm 0.28.0", "", "vLLM 0.28.0 with sha256 draws the seed of its hashes at random; set PYTHONHASHSEED in the engine, and give it as --seed"},
		{"--algorithm xxhash", "", "with xxhash draws the seed"},
		{"--algorithm md5", "", `unknown algorithm "md5"`},
		{"--lora a", "", "--lora needs --lora-path with vLLM " + coordinator.NewestRelease()},
		{"--lora-path a", "", "--lora-path needs --lora"},
		{"--salt \xff", "1", "not UTF-8"},
		{"--tokens-file " + filepath.Join(t.TempDir(), "none"), "", "cannot read the token ids: "},
		{"now", "", `unexpected argument "now"`},
	} {
		got := hitline(t, test.stdin, append([]string{"hash"}, strings.Fields(test.line)...)...)
		assert.Equal(t, exitUsage, got.code, test.line)
		assert.Empty(t, got.stdout)
		assert.Contains(t, got.stderr, test.want)
	}
}

func TestHashOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ids.json")
	require.NoError(t, os.WriteFile(file, []byte("[1,2,3,4,5,6,7,8]"), 0o600))
	assert.Equal(t, result{exitDone, vllmHashes, ""}, hitline(t, "", "hash", "--vllm", coordinator.NewestRelease(), "--block-size", "4", "--tokens-file", file))
}

// The help of --short and of --integers does not read as if one went with the other.
func TestHashHelp(t *testing.T) {
	help := strings.Join(strings.Fields(hitline(t, "", "hash", "--help").stdout), " ")
	assert.Contains(t, help, "--short print 64 bits of each hash, in hex --")
	assert.Contains(t, help, "--integers print 64 bits of each hash, as the decimal numbers of KV events; not with --short")
}

func TestHashReadError(t *testing.T) {
	cmd := newHashCmd()
	cmd.SetIn(iotest.ErrReader(errors.New("disk on fire")))
	cmd.SetArgs(nil)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	assert.ErrorContains(t, err, "cannot read the token ids: standard input: disk on fire")
	assert.Equal(t, exitUsage, exitCode(err))
}

// What hash prints is a hashes file: what is stored by it is found by it.
func TestHashIntoLookup(t *testing.T) {
	s := startServe(t, "pool: {hash_block_size: 16}\n")
	ids := "[" + strings.TrimSuffix(strings.Repeat("7,", 64), ",") + "]"
	hashes := hitline(t, ids, "hash")
	require.Equal(t, exitDone, hashes.code)
	stored := hitline(t, hashes.stdout, "store", "--connect", s.address, "--hashes-file", "-")
	require.Equal(t, exitDone, stored.code, stored.stderr)
	got := hitline(t, hashes.stdout, "lookup", "--connect", s.address, "--tokens", "64", "--hashes-file", "-")
	assert.Equal(t, result{exitDone, "64\n", ""}, got)
}
