package config

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

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

const (
	maxRefused = 96 << 20  // bytes that are allocated for a text that exceeds a bound
	maxParsed  = 512 << 20 // for any other; most of them are free at once
)

// allocated returns how many bytes f allocates. Nothing else may run.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Texts for which the parser would take gigabytes, or many seconds, are refused before it.
func TestHostileTexts(t *testing.T) {
	const deep, many = "lists, braces or fields are too deep in each other", "has more than 10000 fields, list elements or documents"
	const signs = "brackets, quotes and other signs, more than 60000"
	numbered := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	indented := strings.Builder{}
	for i := range 300 {
		fmt.Fprintf(&indented, "%s%s:\n", strings.Repeat(" ", i), strings.Repeat("k", 250))
	}
	for _, test := range []struct{ name, text, want string }{
		{"brackets, 20 kB", strings.Repeat("[", 20_000), "t.yaml:1:2591: " + deep},
		{"brackets, 60 kB", strings.Repeat("[", 60_000), deep},
		{"brackets, 250 kB", strings.Repeat("[", 250_000), "t.yaml: has 250000 " + signs},
		{"brackets in lines", strings.Repeat("[\n", 50_000), deep},
		{"braces", strings.Repeat("{a: ", 30_000), deep},
		{"entries in a line", strings.Repeat("- ", 120_000), deep},
		{"entries in a line, 20 kB", strings.Repeat("- ", 10_000), deep},
		{"a long name", strings.Repeat("k", 100_000) + ": [" + strings.Repeat("1, ", 20_000), deep},
		{"long names, indented", indented.String() + strings.Repeat(" ", 300) + "[" + strings.Repeat("1, ", 10_000), deep},
		{"20,000 fields", numbered("k%d: 1\n", 20_000), "t.yaml:10001:7: " + many},
		{"fields without a value", numbered("k%d:\n", 30_000), many},
		{"fields in braces", "{" + strings.Repeat("1, ", 50_000), many},
		{"complex keys", numbered("? k%d\n", 20_000), many},
		{"entries", strings.Repeat("-\n", 120_000), many},
		{"documents", strings.Repeat("--- a\n", 40_000), many},
		{"signs", strings.Repeat("@", 120_000), signs},
	} {
		t.Run(test.name, func(t *testing.T) {
			var err error
			bytes := allocated(func() { _, _, err = readTestTokens(test.text) })
			require.ErrorContains(t, err, test.want)
			require.Less(t, bytes, uint64(maxRefused))
			_, err = parseTestFile(test.text)
			require.ErrorContains(t, err, test.want, "a configuration, too")
		})
	}
}

// parseTestFile reads a text as a configuration.
func parseTestFile(text string) (*Config, error) {
	c := Default()
	c.origins = origins{}
	return &c, c.readFile("t.yaml", []byte(text))
}

// Brackets and signs in texts and comments do not count, and neither do lists that have ended.
func TestOrdinaryTexts(t *testing.T) {
	signs := strings.Repeat("[{- ", 10)
	text := "tokens:\n"
	for i := range 1_000 {
		text += fmt.Sprintf("  - name: 'n%d %s'  # %s\n    token: \"%016d[[[{{{\"\n    allow: [lookup, ping]\n    pools:\n      - llama\n", i, signs, signs, i)
	}
	list, _, err := readTestTokens(text)
	require.NoError(t, err)
	require.Len(t, list, 1_000)
}
