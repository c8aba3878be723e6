package config

import (
	"bytes"
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a YAML text. Beyond them the parser takes time and memory in proportion to the square of what there is.
const (
	maxText       = 256 << 10 // bytes
	maxTokens     = 20_000    // words and marks, such as a colon or a bracket
	maxLevels     = 32        // lists and sections within one another
	maxName       = 255       // bytes of a field's or a pool's name; the parser keeps those on the way to each value
	maxBlankLines = 100       // in a row
)

// parse parses a text. One that is beyond the bounds it refuses in time and memory proportional to the text, and any
// other takes less than 400 MB and a few seconds.
func (r *reader) parse(text []byte) (*ast.File, error) {
	if len(text) > maxText {
		return nil, r.tooMuch(origin{name: r.name}, "has %d bytes, more than %d", len(text), maxText)
	}
	text = plainLines(text)
	if line := blankLines(text); line > 0 {
		return nil, r.tooMuch(origin{name: r.name, line: line, column: 1}, "more than %d empty lines in a row", maxBlankLines)
	}
	tokens := lexer.Tokenize(string(text))
	if err := r.checkTokens(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, r.syntax(err)
	}
	return file, nil
}

func (r *reader) tooMuch(at origin, format string, args ...any) error {
	return &problem{at: at, text: fmt.Sprintf(format, args...)}
}

// plainLines drops a byte order mark and carriage returns: the parser would count a mark as a column and some returns as
// lines.
func plainLines(text []byte) []byte {
	return bytes.ReplaceAll(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
}

// blankLines returns the number of a line, from 1, that has maxBlankLines of white space alone before it, or 0.
func blankLines(text []byte) int {
	line, first := 1, 1 // first is the one after the last that was not blank
	for _, c := range text {
		switch c {
		case '\n', '\r':
			line++
			if line-first > maxBlankLines {
				return line
			}
		case ' ', '\t':
		default:
			first = line + 1
		}
	}
	return 0
}

// checkTokens refuses too many tokens, levels, and too long names.
func (r *reader) checkTokens(tokens token.Tokens) error {
	var l levels
	for i, t := range tokens {
		l.add(t)
		switch {
		case i == maxTokens:
			return r.tooMuch(r.at(t), "more than %d words and marks", maxTokens)
		case l.depth() > maxLevels:
			return r.tooMuch(r.at(t), "more than %d levels", maxLevels)
		case t.Next != nil && t.Next.Type == token.MappingValueType && len(t.Value) > maxName:
			return r.tooMuch(r.at(t), "a name of %d bytes, more than %d", len(t.Value), maxName)
		}
	}
	return nil
}

// levels counts how deep a token is. In what is no valid YAML it may count too many.
type levels struct {
	flow  int     // brackets that are open
	block []level // lists and sections that indentation makes
}

// level is a list or a section, and the column where its entries begin.
type level struct {
	column int
	list   bool
}

func (l *levels) depth() int { return l.flow + len(l.block) }

func (l *levels) add(t *token.Token) {
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		l.flow++
	case token.SequenceEndType, token.MappingEndType:
		l.flow = max(0, l.flow-1)
	case token.SequenceEntryType:
		l.begin(level{t.Position.Column, true})
	case token.MappingKeyType:
		l.begin(level{t.Position.Column, false})
	case token.MappingValueType:
		if l.flow == 0 && t.Prev != nil {
			l.begin(level{t.Prev.Position.Column, false})
		}
	}
}

// begin ends the levels that an entry of another one ends, and adds that of the entry. A list may begin in the column
// of the section that it is in.
func (l *levels) begin(entry level) {
	if l.flow > 0 {
		return
	}
	for n := len(l.block); n > 0; n-- {
		last := l.block[n-1]
		if last == entry {
			return
		}
		if last.column < entry.column || last.column == entry.column && entry.list {
			break
		}
		l.block = l.block[:n-1]
	}
	l.block = append(l.block, entry)
}
