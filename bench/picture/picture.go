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

// File is one rendering of a picture.
type File struct {
	Suffix  string // to append to the picture's name: ".svg" or "-dark.svg"
	Content []byte
}

// Kinds returns the names of the kinds, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// Draw draws the sources as a picture of the kind, once for light and once for dark pages. An
// error wraps ErrInput if a source, their number or the kind is to blame.
func Draw(kind string, sources []Source) ([]File, error) {
	k, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("%w: no pictures of %q; there are %s", ErrInput, kind, strings.Join(Kinds(), ", "))
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("%w: nothing to draw; name a report", ErrInput)
	}
	f, err := k.figure(sources)
	if err != nil {
		return nil, err
	}
	return []File{{".svg", f.draw(light)}, {"-dark.svg", f.draw(dark)}}, nil
}
