package config

import (
	"bytes"
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxText bounds a text in bytes.
const maxText = 256 << 10

// parse parses a text.
func (r *reader) parse(text []byte) (*ast.File, error) {
	if len(text) > maxText {
		return nil, &problem{at: origin{name: r.name}, text: fmt.Sprintf("has %d bytes, more than %d", len(text), maxText)}
	}
	tokens := lexer.Tokenize(string(plainLines(text)))
	if t := tooDeep(tokens); t != nil {
		return nil, &problem{at: r.at(t), text: fmt.Sprintf("lists and braces are more than %d deep", maxDepth)}
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, r.syntax(err)
	}
	return file, nil
}

// maxDepth bounds how deep lists and braces are in each other in a line. The parser's time grows with the depth's square.
const maxDepth = 100

// tooDeep returns the token that exceeds maxDepth, nil for none.
func tooDeep(tokens token.Tokens) *token.Token {
	depth, entries := 0, 0 // entries: dashes one after the other in a line
	for _, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		}
		if t.Type != token.SequenceEntryType || t.Prev != nil && t.Prev.Position.Line != t.Position.Line {
			entries = 0
		} else {
			entries++
		}
		if depth+entries > maxDepth {
			return t
		}
	}
	return nil
}

// plainLines drops a byte order mark and carriage returns: the parser would count a mark as a column and some returns as
// lines.
func plainLines(text []byte) []byte {
	return bytes.ReplaceAll(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
}
