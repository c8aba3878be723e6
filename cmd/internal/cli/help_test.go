package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// Help has commands and flags by groups, and lines of 80 columns at most.
func TestHelp(t *testing.T) {
	got := run(t.Context(), newTestRoot(nil), "--help")
	assert.Equal(t, result{stdout: `prog is for tests.

Usage:
  prog COMMAND [flags]

Examples:
  prog measure

Measure:
  measure     Measure

Other:
  completion  Generate the autocompletion script for the specified shell
  version     Print it

prog help COMMAND explains a command.
`}, got)
	assert.Equal(t, got, run(t.Context(), newTestRoot(nil), ""))

	got = run(t.Context(), newTestRoot(nil), "measure --help")
	assert.Equal(t, result{stdout: `Measure something.

Usage:
  prog measure --out FILE [flags]

Examples:
  prog measure --out x

Flags:
      --connections int     connections, of which there may be so many
                            that this text takes more than a line (default 1)
  -d, --duration duration   how long
      --dialect string      dialect: raw or zmtp (default "raw")
      --out file            file to write
      --log PATH            PATH of the log
  -h, --help                help for measure

Connection:
      --connect address   address
      --json              one line of JSON
`}, got)
	assert.Equal(t, got, run(t.Context(), newTestRoot(nil), "help measure"))
	for line := range strings.Lines(got.stdout) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), columns, line)
	}
}
