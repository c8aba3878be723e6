package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/internal/printable"
)

// origin is where a value came from.
type origin struct {
	name         string // a file, a variable or a flag
	line, column int    // from 1; 0: the name says all
}

// String returns name:line:column, or just the name.
func (p origin) String() string {
	if p.line == 0 {
		return p.name
	}
	return fmt.Sprintf("%s:%d:%d", p.name, p.line, p.column)
}

// origins has the origin of every path that was set, so that a check of the
// whole can still say where. The last setting wins, as it does for the value.
type origins map[string]origin

// set records that path now comes from p, and deletes what is below path.
func (ps origins) set(path string, p origin) {
	ps.drop(path)
	ps[path] = p
}

// drop deletes path and all below it.
func (ps origins) drop(path string) {
	for known := range ps {
		if below(known, path) {
			delete(ps, known)
		}
	}
}

// below reports whether path is root or lies under it.
func below(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// find returns the origin of path, or of the nearest section around it.
func (ps origins) find(path string) origin {
	for {
		if p, ok := ps[path]; ok {
			return p
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return origin{name: "default"}
		}
		path = path[:cut]
	}
}

// isSet reports whether the value at path, and not only something around or below it, was set.
func (c *Config) isSet(path string) bool {
	_, ok := c.origins[path]
	return ok
}

// problem is the one form of all errors here: origin, path, what is wrong.
type problem struct {
	at   origin
	path string // "" if the origin says enough
	text string
	err  error // what it wraps, may be nil
}

// Error returns "origin: path: text" in one line of printable characters.
func (p *problem) Error() string {
	text := p.at.String() + ": " + p.text
	if p.path != "" {
		text = p.at.String() + ": " + p.path + ": " + p.text
	}
	return printable.Text(text)
}

// Unwrap returns the error of the package that refused the value.
func (p *problem) Unwrap() error { return p.err }

// wrong is a problem of the value at path.
func (c *Config) wrong(path, format string, args ...any) error {
	return &problem{at: c.origins.find(path), path: path, text: fmt.Sprintf(format, args...)}
}

// WithOrigin adds to an error of another package, which refused the values below section
// ("pool", "backend.memory"), the path and the origin of the field that it names, see
// fielderror. Of several fields that is the first that was set, or else the nearest section around the first, unless that
// one is missing.
func (c *Config) WithOrigin(section string, err error) error {
	var e *fielderror.Error
	if !errors.As(err, &e) {
		return &problem{at: c.origins.find(section), path: section, text: err.Error(), err: err}
	}
	path := section + "." + e.Fields[0]
	if i := slices.IndexFunc(e.Fields, func(field string) bool { return c.isSet(section + "." + field) }); i >= 0 {
		path = section + "." + e.Fields[i]
	}
	isMissing := strings.HasPrefix(e.Err.Error(), "is missing")
	for path != section && !c.isSet(path) && !isMissing {
		path = path[:strings.LastIndexAny(path, ".[")]
	}
	return &problem{at: c.origins.find(path), path: path, text: e.Err.Error(), err: err}
}
