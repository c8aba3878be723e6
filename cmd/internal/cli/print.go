package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// PrintResult writes value as one line of JSON, or the text and a newline, to standard output.
func PrintResult(cmd *cobra.Command, asJSON bool, value any, text string) error {
	if asJSON {
		line, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("cannot print the answer: %w", err)
		}
		text = string(line)
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), text); err != nil {
		return fmt.Errorf("cannot print the answer: %w", err)
	}
	return nil
}

// Printable replaces control characters, also those that reorder text. A server may have worded
// a text, which must not span lines or control the terminal.
func Printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) {
			return '.'
		}
		return c
	}, text)
}
