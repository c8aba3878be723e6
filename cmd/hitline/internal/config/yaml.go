package config

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a YAML text. Beyond them the parser takes time and memory in proportion to the square of what there is.
const (
	maxText       = 256 << 10 // bytes
	maxTokens     = 50_000    // words and marks, such as a colon or a bracket, but for comments
	maxBrackets   = 32        // brackets within one another
	maxColumn     = 64        // where an entry of a list or section without brackets begins
	maxNames      = 2048      // bytes of the names on the way to a value, which the parser keeps with each
	maxDocuments  = 100       // marks between documents, of which one may have something
	maxBlankLines = 100       // in a row
)

// parse parses a text. One that is beyond the bounds it refuses in time and memory proportional to the text, and any
// other takes less than 200 MB and a second.
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

// checkTokens refuses too many tokens, levels and documents, and too long names. Without brackets the column where an entry
// begins bounds its level: each section begins further right than the one that it is in.
func (r *reader) checkTokens(tokens token.Tokens) error {
	count, brackets, documents := 0, 0, 0
	var names nameLengths
	for _, t := range tokens {
		entry := t // the first token of one of a list or section, if t tells of one
		switch t.Type {
		case token.CommentType:
			continue
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets = max(0, brackets-1)
		case token.DocumentHeaderType, token.DocumentEndType:
			documents++
		case token.MappingValueType:
			entry = cmp.Or(t.Prev, t)
		}
		count++
		isEntry := t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType || t.Type == token.MappingValueType
		switch {
		case count > maxTokens:
			return r.tooMuch(r.at(t), "more than %d words and marks", maxTokens)
		case brackets > maxBrackets:
			return r.tooMuch(r.at(t), "more than %d brackets within one another", maxBrackets)
		case isEntry && brackets == 0 && entry.Position.Column > maxColumn:
			return r.tooMuch(r.at(t), "an entry beyond column %d", maxColumn)
		case documents > maxDocuments:
			return r.tooMuch(r.at(t), "more than %d documents", maxDocuments)
		case t.Type == token.MappingValueType && names.add(entry, brackets) > maxNames:
			return r.tooMuch(r.at(entry), "names of more than %d bytes on the way to a value", maxNames)
		}
	}
	return nil
}

// nameLengths are the lengths in bytes of the names on the way to a value, by the column that a name begins at or, after
// those, by the brackets that it is within.
type nameLengths [maxColumn + maxBrackets + 1]int

// add replaces those from the level of a name on by its length. It returns the sum.
func (n *nameLengths) add(name *token.Token, brackets int) int {
	level := min(name.Position.Column, maxColumn)
	if brackets > 0 {
		level = maxColumn + brackets
	}
	clear(n[level:])
	n[level] = len(name.Value)
	sum := 0
	for _, length := range n {
		sum += length
	}
	return sum
}
