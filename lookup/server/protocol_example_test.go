package server

import (
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// spoken is what one side says in an example.
type spoken struct {
	client bool
	bytes  []byte
}

// wireExample reads the lines of a section's indented blocks that begin with C or
// S, and those that go on from them: numbers in hex, JSON and quoted text up to three
// spaces, behind which they are explained.
func wireExample(t *testing.T, section string) (all []spoken) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/protocol.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(doc), section+"\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n## ")
	line := regexp.MustCompile(`^    (C  |S  |   )(\S.*)$`)
	for l := range strings.SplitSeq(text, "\n") {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		if m[1] != "   " {
			all = append(all, spoken{client: m[1] == "C  "})
		}
		if len(all) == 0 {
			continue
		}
		said, _, _ := strings.Cut(m[2], "   ")
		for word := range strings.FieldsSeq(said) {
			b := []byte(strings.Trim(word, `"`))
			if word[0] != '"' && word[0] != '{' {
				b, err = hex.DecodeString(word)
				require.NoError(t, err, l)
			}
			all[len(all)-1].bytes = append(all[len(all)-1].bytes, b...)
		}
	}
	return all
}
