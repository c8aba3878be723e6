// Package printable makes a text that a peer, an engine or a store may have worded fit for a terminal, a log and an error.
package printable

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text returns a text in which each character that people do not see as itself is written as in a Go string, such as \n:
// those that control a terminal, end a line or reorder a text. Bytes that are no UTF-8 become U+FFFD.
func Text(text string) string {
	return Replace(text, func(c rune) string { return strings.Trim(strconv.QuoteRuneToASCII(c), "'") })
}

// Cut is Text of the first bytes of a text, at most limit, and … in place of the others.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return Text(text)
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return Text(text[:limit]) + "…"
}

// Replace returns a text in which replace has written the characters that Text does not leave as they are.
func Replace(text string, replace func(c rune) string) string {
	if !strings.ContainsFunc(text, isHidden) {
		return strings.ToValidUTF8(text, string(utf8.RuneError))
	}
	var b strings.Builder
	for _, c := range text {
		if isHidden(c) {
			b.WriteString(replace(c))
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

func isHidden(c rune) bool { return !strconv.IsPrint(c) }
