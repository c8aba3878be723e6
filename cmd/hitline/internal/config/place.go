package config

import (
	"fmt"
	"regexp"
	"strings"
)

// place is where a value came from.
type place struct {
	name         string // a file, a variable or a flag
	line, column int    // from 1; 0: the name says all
}

// String returns name:line:column, or just the name.
func (p place) String() string {
	if p.line == 0 {
		return p.name
	}
	return fmt.Sprintf("%s:%d:%d", p.name, p.line, p.column)
}

// places remembers the place of every path that was set, so that a check of the
// whole can still say where. The last setting wins, as it does for the value.
type places map[string]place

// set notes that path now comes from p, and forgets what was below it before.
func (ps places) set(path string, p place) {
	ps.drop(path)
	ps[path] = p
}

// drop forgets path and all below it.
func (ps places) drop(path string) {
	for known := range ps {
		if below(known, path) {
			delete(ps, known)
		}
	}
}

// below tells whether path is root or lies under it.
func below(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// find returns the place of path, or of the nearest thing around it.
func (ps places) find(path string) place {
	for {
		if p, ok := ps[path]; ok {
			return p
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return place{name: "default"}
		}
		path = path[:cut]
	}
}

// problem is the one form of all errors here: place, path, what is wrong.
type problem struct {
	at   place
	path string // "" where the place says enough
	text string
	err  error // what it wraps, may be nil
}

// Error returns "place: path: text".
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
	return &problem{at: c.places.find(path), path: path, text: fmt.Sprintf(format, args...)}
}

// Blame dresses an error of another package, which refused the values below
// section ("pool", "backend.memory"), with the place of the one it names. The
// text of general, which place and path say better, is left out.
func (c *Config) Blame(section string, err error, general ...error) error {
	text := err.Error()
	for _, noise := range general {
		text = strings.Replace(text, noise.Error()+": ", "", 1)
	}
	path := c.named(section, text)
	if group := groupName.FindString(path); group != "" {
		text = strings.TrimPrefix(text, group+": ")
	}
	return &problem{at: c.places.find(path), path: path, text: text, err: err}
}

// These match the names of values in the errors of other packages.
var (
	mention   = regexp.MustCompile(`groups\[\d+\]|[a-z_]+`)
	groupName = regexp.MustCompile(`groups\[\d+\]`)
)

// named returns the path below section of the first value that text names and
// that was set, or section itself.
func (c *Config) named(section, text string) string {
	group := ""
	for _, name := range mention.FindAllString(text, -1) {
		if strings.HasPrefix(name, "groups[") && group == "" {
			group = section + "." + name
			continue
		}
		for _, inner := range []string{group, section} {
			if _, ok := c.places[inner+"."+name]; ok && inner != "" {
				return inner + "." + name
			}
		}
	}
	if _, ok := c.places[group]; ok && group != "" {
		return group
	}
	return section
}
