package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a text. The parser's time and memory grow with squares of these numbers, so they are checked before it.
const (
	maxText   = 256 << 10 // bytes
	maxSigns  = 60_000    // that may be tokens; the scanner keeps those of a line
	maxFields = 10_000    // in all sections together; also elements of block lists, and documents
	maxCommas = 30_000
	// maxPaths bounds the bytes of paths. The parser keeps one for each token, with the names of all that it is in.
	maxPaths = 32 << 20
)

// parse parses a text.
func (r *reader) parse(text []byte) (*ast.File, error) {
	if len(text) > maxText {
		return nil, &problem{at: origin{name: r.name}, text: fmt.Sprintf("has %d bytes, more than %d", len(text), maxText)}
	}
	text = plainLines(text)
	if err := r.checkSize(string(text)); err != nil {
		return nil, err
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, r.syntax(err)
	}
	return file, nil
}

// checkSize refuses a text that exceeds the bounds.
func (r *reader) checkSize(text string) error {
	signs := 0
	for _, c := range []byte(text) {
		if strings.IndexByte("[]{},:?&*!|>%@`\"'", c) >= 0 {
			signs++
		}
	}
	if signs > maxSigns {
		return &problem{at: origin{name: r.name}, text: fmt.Sprintf("has %d brackets, quotes and other signs, more than %d", signs, maxSigns)}
	}
	var s scanner.Scanner
	s.Init(text)
	size := newTextSize()
	for err := error(nil); !errors.Is(err, io.EOF); { // the parser finds the others again
		var tokens token.Tokens
		tokens, err = s.Scan()
		for _, t := range tokens {
			size.add(t)
			if excess := size.excess(); excess != "" {
				return &problem{at: r.at(t), text: excess}
			}
		}
	}
	return nil
}

// textSize is the size of a text up to a token.
type textSize struct {
	tokens  int
	counts  map[token.Type]int
	deepest int // how many lists, braces and fields are in each other
	longest int // bytes of a field's name, or of an index
	last    *token.Token
	columns []int // where the lines begin that the line of last is in
	inLine  int   // lists that begin in the line of last
	open    int   // brackets and braces
}

func newTextSize() *textSize {
	return &textSize{counts: map[token.Type]int{}, longest: len("[999]"), last: &token.Token{Position: &token.Position{}}}
}

// add counts a token.
func (s *textSize) add(t *token.Token) {
	s.tokens++
	s.counts[t.Type]++
	if t.Position.Line != s.last.Position.Line {
		s.beginLine(t.Position.Column)
	}
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		s.open++
	case token.SequenceEndType, token.MappingEndType:
		s.open--
	case token.SequenceEntryType:
		s.inLine++
	case token.MappingValueType:
		s.longest = max(s.longest, len(s.last.Value))
	}
	s.deepest = max(s.deepest, len(s.columns)+s.inLine+s.open)
	s.last = t
}

// beginLine begins a line at a column. It is in the lines above that begin further left.
func (s *textSize) beginLine(column int) {
	n := len(s.columns)
	for n > 0 && s.columns[n-1] >= column {
		n--
	}
	s.columns, s.inLine = append(s.columns[:n], column), 0
}

// excess returns which bound is exceeded, "" if none is.
func (s *textSize) excess() string {
	switch {
	case s.tokens*s.deepest*s.longest > maxPaths:
		return "lists, braces or fields are too deep in each other, or the names of fields are too long"
	case s.counts[token.MappingValueType] > maxFields, s.counts[token.MappingKeyType] > maxFields,
		s.counts[token.SequenceEntryType] > maxFields, s.counts[token.DocumentHeaderType] > maxFields, s.counts[token.CollectEntryType] > maxCommas:
		return fmt.Sprintf("has more than %d fields, list elements or documents, or %d commas", maxFields, maxCommas)
	}
	return ""
}

// plainLines drops a byte order mark and carriage returns: the parser would count a mark as a column and some returns as
// lines.
func plainLines(text []byte) []byte {
	return bytes.ReplaceAll(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
}
