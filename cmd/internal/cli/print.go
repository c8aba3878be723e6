package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// PrintResult writes value as one line of JSON, or the text and a newline, to standard output.
func PrintResult(cmd *cobra.Command, asJSON bool, value any, text string) error {
	if asJSON {
		return WriteJSON(cmd.OutOrStdout(), value)
	}
	return WriteText(cmd.OutOrStdout(), text+"\n")
}

// WriteJSON writes value as one line of JSON. Control characters in its texts are escaped, as those of Printable.
func WriteJSON(w io.Writer, value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("cannot print the answer: %w", err)
	}
	text := escape(string(line), func(c rune) string { return fmt.Sprintf("\\u%04x", c) }) + "\n"
	return write(w, text)
}

// WriteText writes lines of text. Control characters other than the ends of lines and tabs are escaped, as by Printable.
func WriteText(w io.Writer, text string) error {
	return write(w, escape(text, func(c rune) string {
		if c == '\n' || c == '\t' {
			return string(c)
		}
		return escaped(c)
	}))
}

func write(w io.Writer, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("cannot print the answer: %w", err)
	}
	return nil
}

// Printable escapes control characters as Go does, also those that end lines or reorder text. A server or an engine may
// have worded a text, which must not span lines or control the terminal.
func Printable(text string) string { return escape(text, escaped) }

// escaped returns a character as Go writes it in a string, such as \t.
func escaped(c rune) string { return strings.Trim(strconv.QuoteRuneToASCII(c), "'") }

// escape replaces the characters that a terminal obeys or that change how it shows others.
func escape(text string, replace func(c rune) string) string {
	if !strings.ContainsFunc(text, isControl) {
		return text
	}
	var b strings.Builder
	for _, c := range text {
		if isControl(c) {
			b.WriteString(replace(c))
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// isControl reports control characters, marks that reorder text, and the separators of lines and paragraphs.
func isControl(c rune) bool {
	return unicode.IsControl(c) || unicode.In(c, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}
