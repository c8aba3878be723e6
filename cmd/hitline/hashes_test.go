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
)

func TestReadHashes(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want hashList
	}{
		"nothing":      {"", hashList{}},
		"only remarks": {"# a\n\n  \n#b", hashList{}},
		"one":          {"00ff", hashList{blob: []byte{0, 255}, hashLen: 2}},
		"several":      {"# prompt\n0A0b\n\n  0c0D\t\r\n# end\nffff\n", hashList{blob: []byte{10, 11, 12, 13, 255, 255}, hashLen: 2}},
		"longest":      {strings.Repeat("ab", 64), hashList{blob: []byte(strings.Repeat("\xab", 64)), hashLen: 64}},
		"0x and BOM":   {"\ufeff0x00ff\n0xAB01\n", hashList{blob: []byte{0, 255, 0xab, 1}, hashLen: 2}},
		"long remark":  {"#" + strings.Repeat("x", 60000) + "\n01\n", hashList{blob: []byte{1}, hashLen: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readHashes("h", strings.NewReader(test.text))
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
			assert.Equal(t, len(test.want.blob), got.count()*got.hashLen)
		})
	}
}

func TestReadHashesErrors(t *testing.T) {
	for text, want := range map[string]string{
		"00\n# x\n\n0":                    "h:4: 1 hex digits are not whole bytes",
		"00\nzz\n":                        `h:2: "zz" is not a hash in hex`,
		"0x0\n":                           "h:1: 1 hex digits are not whole bytes",
		"0x\n":                            `h:1: "0x" is not a hash in hex`,
		"0x0x00\n":                        `h:1: "0x0x00" is not a hash in hex`,
		"00 11\n":                         `h:1: "00 11" is not a hash in hex`,
		"00\n1122\n":                      "h:2: hash of 2 bytes after one of 1; all must be of one length",
		strings.Repeat("ab", 65):          "h:1: hash of 65 bytes, at most 64 are possible",
		strings.Repeat("g", 200):          `h:1: "gggggggggggggggggggg" is not a hash in hex`,
		"00\n" + strings.Repeat("0", 1e5): "h:2: line longer than 65536 bytes; write one hash a line",
	} {
		got, err := readHashes("h", strings.NewReader(text))
		assert.EqualError(t, err, want)
		assert.Equal(t, exitUsage, exitCode(err))
		assert.Zero(t, got)
	}
	_, err := readHashes("h", iotest.ErrReader(errors.New("disk on fire")))
	assert.EqualError(t, err, "cannot read the hashes: h:1: disk on fire")
}

// A bad hashes file is found before anything is connected to, and exits with 2.
func TestHashesFileOfACommand(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.hex")
	require.NoError(t, os.WriteFile(bad, []byte("00\n1\n"), 0o600))
	for _, test := range []struct{ line, stdin, want string }{
		{"lookup --tokens 16 --hashes-file " + bad, "", bad + ":2: 1 hex digits are not whole bytes"},
		{"lookup --tokens 16 --hashes-file -", "\nx1", `standard input:2: "x1" is not a hash in hex`},
		{"lookup --tokens 16 --hashes-file " + dir + "/none", "", "cannot read the hashes: open " + dir + "/none: no such file or directory"},
		{"lookup --tokens 16 --hashes-file " + dir, "", "cannot read the hashes: " + dir + " is a directory; name a file, or - for standard input"},
		{"store --hashes-file -", "# nothing\n", "standard input is empty: give at least one hash, in hex; a prompt shorter than a block has none"},
		{"evict --hashes-file -", "", "standard input is empty: give at least one hash, in hex; a prompt shorter than a block has none"},
	} {
		got := hitline(t, test.stdin, append(strings.Fields(test.line), "--connect", "tcp://127.0.0.1:1")...)
		assert.Equal(t, result{exitUsage, "", "hitline: " + test.want + "\n"}, got)
	}
}
