package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hitline/hitline/internal/fielderror"
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

// problem is the one form of all errors here: origin, path, what is wrong.
type problem struct {
	at   origin
	path string // "" if the origin says enough
	text string
	err  error // what it wraps, may be nil
}

// Error returns "origin: path: text".
func (p *problem) Error() string {
	if p.path == "" {
		return fmt.Sprintf("%v: %s", p.at, p.text)
	}
	return fmt.Sprintf("%v: %s: %s", p.at, p.path, p.text)
}

// Unwrap returns the error of the package that refused the value.
func (p *problem) Unwrap() error { return p.err }

// wrong is a problem of the value at path.
func (c *Config) wrong(path, format string, args ...any) error {
	return &problem{at: c.origins.find(path), path: path, text: fmt.Sprintf(format, args...)}
}

// Blame gives an error of another package, which refused the values below section
// ("pool", "backend.memory"), the path and the origin of the field that it names, see
// fielderror. Of several fields that is the first that was set.
func (c *Config) Blame(section string, err error) error {
	var e *fielderror.Error
	if !errors.As(err, &e) {
		return &problem{at: c.origins.find(section), path: section, text: err.Error(), err: err}
	}
	path := c.firstSet(section, e.Fields)
	return &problem{at: c.origins.find(path), path: path, text: e.Err.Error(), err: err}
}

// firstSet returns the path below section of the first field that was set, or else of
// the nearest section around the first.
func (c *Config) firstSet(section string, fields []string) string {
	for _, field := range fields {
		if _, ok := c.origins[section+"."+field]; ok {
			return section + "." + field
		}
	}
	path := section + "." + fields[0]
	for path != section {
		path = path[:strings.LastIndexAny(path, ".[")]
		if _, ok := c.origins[path]; ok {
			break
		}
	}
	return path
}
