package config

import (
	"fmt"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parseText parses a text as a configuration.
func parseText(text string) error {
	_, err := (&reader{name: "f.yaml"}).parse([]byte(text))
	return err
}

// numbered returns n copies of a line, with their numbers for %d.
func numbered(n int, line string) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(strings.ReplaceAll(line, "%d", fmt.Sprint(i)))
	}
	return text.String()
}

// allocated returns the bytes that the process has ever allocated.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

var long = strings.Repeat("k", 255)

// beyondBounds are texts on which the parser would spend gigabytes or minutes.
var beyondBounds = map[string]string{
	strings.Repeat("[", 200_000):                              "f.yaml:1:33: more than 32 brackets within one another",
	strings.Repeat("- ", 20_000):                              "f.yaml:1:65: an entry beyond column 64",
	nestedFields(65):                                          "f.yaml:65:66: an entry beyond column 64",
	numbered(17_000, "k%d: 1\n"):                              "f.yaml:16667:9: more than 50000 words and marks",
	strings.Repeat(`"`, 200_000):                              "f.yaml:1:100001: more than 50000 words and marks",
	numbered(9_000, "---\na\n"):                               "f.yaml:201:1: more than 100 documents",
	strings.Repeat(`"`, 1<<20):                                "f.yaml: has 1048576 bytes, more than 262144",
	strings.Repeat("k", 3000) + ": [" + numbered(9_000, "a,"): "f.yaml:1:1: names of more than 2048 bytes on the way to a value",
	strings.ReplaceAll(nestedFields(5), "a", long) + "     " + long + ": {" + long + ": {" + long + ": {" + long + ": 1": "f.yaml:6:780: names of more than 2048 bytes on the way to a value",
	"a: |\n  b\n" + strings.Repeat("\n", 200_000):     "f.yaml:104:1: more than 100 empty lines in a row",
	"a: |\n  b\n" + strings.Repeat(" \t\r\n", 50_000): "f.yaml:104:1: more than 100 empty lines in a row",
}

// nestedFields returns n fields, each below the one before.
func nestedFields(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return text.String()
}

func TestTextsBeyondBounds(t *testing.T) {
	for text, want := range beyondBounds {
		before := allocated()
		assert.EqualError(t, parseText(text), want)
		assert.Less(t, allocated()-before, uint64(1<<20+500*len(text)), want)
	}
	_, err := Load(Source{Environ: []string{"HITLINE_POOLS=" + strings.Repeat("[", 100)}})
	assert.EqualError(t, err, "HITLINE_POOLS:1:33: more than 32 brackets within one another")
	_, _, err = readTestTokens("tokens: " + strings.Repeat("[", 100))
	assert.EqualError(t, err, "t.yaml:1:41: more than 32 brackets within one another")
}

// The error of the parser has the text around it, which it takes long to format.
func TestSyntaxErrorOfManyWords(t *testing.T) {
	text := strings.Repeat(`"`, 2*maxTokens)
	before := allocated()
	require.ErrorContains(t, parseText(text), "f.yaml:1:")
	assert.Less(t, allocated()-before, uint64(50<<20))
}

// Brackets and dashes in texts and comments are no levels.
func TestTextsWithinBounds(t *testing.T) {
	brackets := strings.Repeat("[{", 100)
	dashes := strings.Repeat("- ", 100)
	for _, text := range []string{
		nestedFields(31) + strings.Repeat(" ", 40) + "- 1\n",
		strings.Repeat("[", 32) + strings.Repeat("]", 32),
		strings.Repeat("- ", 32) + "a\n",
		numbered(2_800, "- [[[]]]\n"),
		numbered(600, "  - {name: n%d, token: 0123456789abcdef, allow: [lookup, plan, stat, ping, pool]}\n"),
		numbered(3_000, "- {a: b}\n"),
		numbered(1_500, "- name: n%d # c\n  token: 0123456789abcdef\n  allow: [lookup, plan, stat, ping, pool]\n  # c\n  pools: [a]\n  pool: b\n  f: 1\n"),
		strings.Repeat("# c\n", 60_000) + "- a # c\n",
		numbered(200, strings.Repeat("k", 250)+"%d: 1\n") + "k: {" + numbered(200, strings.Repeat("k", 250)+"%d: 1,") + "}\n",
		"a:\n- b:\n  - c:\n    - d\n",
		numbered(500, "k%d:\n- a:\n  - b\n"),
		"a: \"" + brackets + dashes + "\"\n",
		"a: '" + brackets + dashes + "'\n",
		"a: |\n  " + brackets + "\n  " + dashes + "\n\n\n  '\n",
		"a: >-\n  " + brackets + "\n  " + dashes + "\nb: 1\n",
		"a: b" + brackets + " " + dashes + "\n",
		"# " + brackets + "\na: b # " + brackets + dashes + "\n",
		strings.Repeat("\n", 100) + "a: b\n" + strings.Repeat("# c\n\n", 1000),
		strings.Repeat("k", 2048) + ": 1\n",
		"",
	} {
		assert.NoError(t, parseText(text), "%.100q", text)
	}
}

// Only regular files of a bounded size are read.
func TestReadRegular(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	large := write(t, strings.Repeat("#", maxText)+"\n")
	for path, want := range map[string]string{
		pipe:  "cannot read the configuration: " + pipe + " is not a regular file",
		large: large + ": has 262145 bytes, more than 262144",
	} {
		_, err := Load(Source{File: path})
		require.ErrorContains(t, err, want)
	}
}

// Whatever a text is, the memory that it is refused or parsed with is bounded.
func FuzzParse(f *testing.F) {
	for text := range beyondBounds {
		f.Add(text[:min(len(text), 4000)])
	}
	f.Add("a: [\"b\", 'c', {d: |\n  e\n\n}]\n? &f [*f]\n: !g h\n")
	f.Add("%YAML 1.2\n--- >-2\n  a\n\n\n...\n<<: {a: b}\n")
	f.Fuzz(func(t *testing.T, text string) {
		before := allocated()
		err := parseText(text)
		if used := allocated() - before; used > uint64(4<<20+4096*len(text)) {
			t.Errorf("%d bytes of memory for %d bytes of text: %v", used, len(text), err)
		}
	})
}
