package picture

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrInput says that a source is not what the kind of picture takes.
var ErrInput = errors.New("picture: bad input")

// Source is a report, as a hitbench command printed it with --json.
type Source struct {
	Name string // stands in labels and in errors
	JSON []byte // one JSON object
}

// Options says what to draw of the sources.
type Options struct {
	// Hashes picks those rows of comparisons that have so many hashes, for the kind
	// "latency"; 0 for the number that the first row has.
	Hashes int
}

// File is one rendering of a picture.
type File struct {
	Suffix  string // to append to the picture's name: ".svg" or "-dark.svg"
	Content []byte
}

// kinds has what can be drawn, by name.
var kinds = map[string]kind{
	"latency":  latency,
	"knee":     knee,
	"cost":     cost,
	"capacity": capacity,
	"replay":   replay,
	"scale":    scaling,
}

// Kinds returns the names of the kinds, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// Draw draws the sources as a picture of the kind, once for light and once for dark pages. An
// error wraps ErrInput if a source, their number or the kind is to blame.
func Draw(kind string, sources []Source, o Options) ([]File, error) {
	k, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("%w: no pictures of %q; there are %s", ErrInput, kind, strings.Join(Kinds(), ", "))
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("%w: nothing to draw; name a report", ErrInput)
	}
	f, err := k.figure(sources, o)
	if err != nil {
		return nil, err
	}
	return []File{{".svg", f.draw(light)}, {"-dark.svg", f.draw(dark)}}, nil
}
