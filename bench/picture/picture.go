package picture

import (
	"cmp"
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
	Name string // stands in the legend and in errors
	JSON []byte // one JSON object
}

// Options says what to draw of the sources.
type Options struct {
	// Hashes picks those rows of comparisons that have so many hashes, for the kind
	// "latency"; 0 for the number that the first row has.
	Hashes int

	dpi int // of the PNG; 0: pngDPI, which takes long under the race detector
}

// File is one rendering of a picture.
type File struct {
	Suffix  string // to append to the picture's name: ".svg", ".png", "-dark.svg", "-dark.png"
	Content []byte
}

// drawers makes the figure of each kind.
var drawers = map[string]func([]Source, Options) (figure, error){
	"latency":  latency,
	"knee":     knee,
	"cost":     cost,
	"capacity": capacity,
	"replay":   replay,
	"scale":    scaling,
}

// Kinds returns the names of the kinds, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(drawers)) }

// Draw draws the sources as a picture of the kind, in four renderings. An error
// wraps ErrInput if a source, their number or the kind is to blame.
func Draw(kind string, sources []Source, o Options) ([]File, error) {
	draw, ok := drawers[kind]
	if !ok {
		return nil, fmt.Errorf("%w: no pictures of %q; there are %s", ErrInput, kind, strings.Join(Kinds(), ", "))
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("%w: nothing to draw; name a report", ErrInput)
	}
	f, err := draw(sources, o)
	if err != nil {
		return nil, err
	}
	return f.render(cmp.Or(o.dpi, pngDPI))
}
