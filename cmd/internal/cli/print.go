package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/internal/printable"
)

// JSONFlag defines the flag by which a command prints JSON.
func JSONFlag(flags *pflag.FlagSet, asJSON *bool) {
	flags.BoolVar(asJSON, "json", false, "print one line of JSON")
}

// PrintResult writes value as one line of JSON, or the text and a newline, to standard output.
func PrintResult(cmd *cobra.Command, asJSON bool, value any, text string) error {
	if asJSON {
		return WriteJSON(cmd.OutOrStdout(), value)
	}
	return WriteText(cmd.OutOrStdout(), text+"\n")
}

// WriteJSON writes value as one line of JSON, in which the characters that printable.Text escapes are escaped.
func WriteJSON(w io.Writer, value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("cannot print the answer: %w", err)
	}
	text := printable.Replace(string(line), func(c rune) string {
		var escaped strings.Builder
		for _, unit := range utf16.AppendRune(nil, c) {
			fmt.Fprintf(&escaped, "\\u%04x", unit)
		}
		return escaped.String()
	})
	return write(w, text+"\n")
}

// WriteText writes lines of text, which are printable but for tabs.
func WriteText(w io.Writer, text string) error {
	return write(w, printable.Replace(text, func(c rune) string {
		if c == '\n' || c == '\t' {
			return string(c)
		}
		return printable.Text(string(c))
	}))
}

func write(w io.Writer, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("cannot print the answer: %w", err)
	}
	return nil
}
