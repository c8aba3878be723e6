package config

import (
	_ "embed"
	"strings"
)

// template has every section and field, commented out: a # is before each line of a section.
//
//go:embed template.yaml
var template string

// Template returns a file for serve whose lines are comments that show the defaults. The section of
// backend, if that is not "", is no comment.
func Template(backend string) (string, error) {
	if backend == "" {
		return template, nil
	}
	if err := checkBackendName(backend); err != nil {
		return "", err
	}
	before, rest, _ := strings.Cut(template, "\n#backend:\n#  "+backend+":")
	section, after, _ := strings.Cut(rest, "\n\n")
	return before + "\nbackend:\n  " + backend + ":" + strings.ReplaceAll(section, "\n#", "\n") + "\n\n" + after, nil
}
