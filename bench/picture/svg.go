package picture

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// svg is a drawing under way. Lengths are pixels, from the top left.
type svg struct{ bytes.Buffer }

// attributes writes names and values in turn. Numbers are rounded to a tenth.
func (s *svg) attributes(pairs []any) {
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(s, ` %s="`, pairs[i])
		s.escape(fmt.Sprint(rounded(pairs[i+1])))
		s.WriteByte('"')
	}
}

// open begins an element, and end ends it.
func (s *svg) open(name string, pairs ...any) {
	s.WriteString("<" + name)
	s.attributes(pairs)
	s.WriteString(">\n")
}

func (s *svg) end(name string) { s.WriteString("</" + name + ">\n") }

// element writes an empty element.
func (s *svg) element(name string, pairs ...any) {
	s.WriteString("<" + name)
	s.attributes(pairs)
	s.WriteString("/>\n")
}

// text writes an element that holds text.
func (s *svg) text(name, text string, pairs ...any) {
	s.WriteString("<" + name)
	s.attributes(pairs)
	s.WriteByte('>')
	s.escape(text)
	s.end(name)
}

func (s *svg) escape(text string) { _ = xml.EscapeText(s, []byte(text)) } // a bytes.Buffer does not fail

// rounded returns numbers as text.
func rounded(value any) any {
	if v, ok := value.(float64); ok {
		return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
	}
	return value
}

// textWidth returns the width of a text in pixels, or a little more: readers have different
// fonts. The shares of the size are those of DejaVu Sans, which is a wide one.
func textWidth(text string, size float64) float64 {
	width := 0.0
	for _, r := range text {
		switch {
		case strings.ContainsRune("ijlI.,:;'|! frt()[]/-", r):
			width += 0.4
		case strings.ContainsRune("mwMW%@—…", r):
			width += 0.98
		case r >= 'A' && r <= 'Z':
			width += 0.72
		default:
			width += 0.64
		}
	}
	return width * size
}

// wrap breaks text at spaces into lines of at most a width. A longer word is cut.
func wrap(text string, size, width float64) []string {
	var lines []string
	for _, word := range strings.Fields(text) {
		n := len(lines)
		if n > 0 && textWidth(lines[n-1]+" "+word, size) <= width {
			lines[n-1] += " " + word
			continue
		}
		for cut := []rune(word); textWidth(word, size) > width && len(cut) > 0; {
			cut = cut[:len(cut)-1]
			word = string(cut) + "…"
		}
		lines = append(lines, word)
	}
	return lines
}
