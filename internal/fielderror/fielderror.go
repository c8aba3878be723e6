// Package fielderror has the error of a configuration's field. Packages that refuse a
// configuration name the field by it, so that the reader of the configuration finds
// where it was set.
package fielderror

import (
	"errors"
	"fmt"
)

// ErrConfig is api.ErrConfig. It is here because the index and the stores do not import package api.
var ErrConfig = errors.New("bad configuration")

// Error refuses the value of a field, or the values of several fields together.
type Error struct {
	// Fields are paths below the configuration that was refused, by the names of its YAML:
	// "groups[1].block_size". At least one. If several do not fit together the first is
	// the most likely to be wrong.
	Fields []string
	Err    error // what is wrong; its text need not name the path
}

// New returns an Error of the fields whose text and wrapped errors are those of
// fmt.Errorf.
func New(fields []string, format string, args ...any) error {
	return &Error{Fields: fields, Err: fmt.Errorf(format, args...)}
}

// Below returns err with the fields of its Error below a section, such as "groups[1]". Any
// other error blames the section.
func Below(section string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Fields: []string{section}, Err: err}
	}
	fields := make([]string, len(e.Fields))
	for i, field := range e.Fields {
		fields[i] = section + "." + field
	}
	return &Error{Fields: fields, Err: e.Err}
}

// Error returns "path: text", with the first path.
func (e *Error) Error() string { return e.Fields[0] + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
