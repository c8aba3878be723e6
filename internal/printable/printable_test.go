package printable

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "plain é 日本 🚀 \"'": "plain é 日本 🚀 \"'",
		"a\n\t\x1b[2J\x7f\u009b": `a\n\t\x1b[2J\x7f\u009b`,
		"\u202e\u2028\u200b":     `\u202e\u2028\u200b`,
		"\U000e0041":             `\U000e0041`,
		"a\xffb":                 "a\uFFFDb", "\xff\n": `` + "\uFFFD" + `\n`,
	} {
		require.Equal(t, want, Text(text))
	}
}

func TestCut(t *testing.T) {
	require.Equal(t, "abc", Cut("abc", 3))
	require.Equal(t, "ab…", Cut("abc", 2))
	require.Equal(t, "a…", Cut("aéé", 2), "no character is cut")
	require.Equal(t, `a\n…`, Cut("a\nbcd", 2))
}
