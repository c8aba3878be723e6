package config

import (
	"errors"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
)

// plainWords are what to say in place of the parser's messages, by what these match.
var plainWords = []struct {
	parser *regexp.Regexp
	text   string
}{
	{regexp.MustCompile(`.*(?:\t|tab character).*`), "a tab; write spaces, as tabs cannot indent"},
	{regexp.MustCompile(`mapping key "(.*)" already defined at \[(.*)\]`), "field $1 is there twice, the first at $2; remove one"},
	{regexp.MustCompile(`.*value is not allowed in this context.*`), "indented deeper than the line before, which has a value; align it"},
	{regexp.MustCompile(`.*(?:non-map value|unexpected key name|map key-value pair).*`), "neither a field nor a value; write name: value, with a space after the colon"},
	{regexp.MustCompile(`.*(?:sequence end token|to ']'|sequence element).*`), "a list in brackets is not complete; close it with ]"},
	{regexp.MustCompile(`.*(?:mapping end token|flow map content|or '}' must|to '}').*`), "fields in braces are not complete; separate them by commas, and close them with }"},
	{regexp.MustCompile(`.*end character of (?:single|double)-quoted text.*`), "a text in quotes has no end; close the quotes"},
	{regexp.MustCompile(`'(.*)' is a reserved character`), "a text cannot begin with $1; put it in quotes"},
}

// syntax words an error of the parser.
func (r *reader) syntax(err error) error {
	p := &problem{at: origin{name: r.name}, err: err}
	var positioned yaml.Error
	if errors.As(err, &positioned) && positioned.GetToken() != nil {
		p.at = r.at(positioned.GetToken())
		p.text, _, _ = strings.Cut(positioned.GetMessage(), "\n")
	} else {
		p.text = err.Error() // not of the others: it has the text around in it, for which it takes minutes
	}
	if r.secret {
		p.text, p.err = "is not YAML, or has a field twice", nil
		return p
	}
	for _, plain := range plainWords {
		p.text = plain.parser.ReplaceAllString(p.text, plain.text)
	}
	return p
}
