package config

import (
	"bytes"
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxText bounds a text in bytes. A text is the operator's own: what the parser takes for a smaller one is not bounded.
const maxText = 256 << 10

// parse parses a text.
func (r *reader) parse(text []byte) (*ast.File, error) {
	if len(text) > maxText {
		return nil, &problem{at: origin{name: r.name}, text: fmt.Sprintf("has %d bytes, more than %d", len(text), maxText)}
	}
	file, err := parser.ParseBytes(plainLines(text), 0)
	if err != nil {
		return nil, r.syntax(err)
	}
	return file, nil
}

// plainLines drops a byte order mark and carriage returns: the parser would count a mark as a column and some returns as
// lines.
func plainLines(text []byte) []byte {
	return bytes.ReplaceAll(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
}
