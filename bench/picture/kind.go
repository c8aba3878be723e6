package picture

import (
	"slices"
	"strings"
)

// kind is how reports of one sort are drawn.
type kind struct {
	title  string
	panels []panel // without curves
	read   func(s Source, r report) (content, error)
}

// content is what a figure has of a source.
type content struct {
	curves [][]curve // by panel; one without a name has the source's
	setup  []string  // what was measured, in parts
	note   string    // how to read it; may be empty
}

// figure reads the sources. What was measured stands below the title if it is the same for
// all, and else in the labels.
func (k kind) figure(sources []Source) (figure, error) {
	f := figure{title: k.title, panels: slices.Clone(k.panels)}
	contents := make([]content, len(sources))
	for i, s := range sources {
		r, err := decode(s)
		if err == nil {
			contents[i], err = k.read(s, r)
		}
		if err != nil {
			return f, err
		}
	}
	about := slices.DeleteFunc(slices.Clone(contents[0].setup), func(part string) bool { return !inAll(contents, part) })
	f.about = strings.Join(about, ", ")
	for i, c := range contents {
		name := sources[i].Name
		for _, part := range c.setup {
			if !slices.Contains(about, part) && !strings.Contains(name, part) {
				name += ", " + part
			}
		}
		if c.note != "" && !strings.Contains(f.about, c.note) {
			f.about = strings.TrimPrefix(f.about+"; "+c.note, "; ")
		}
		for j, curves := range c.curves {
			for _, curve := range curves {
				if err := f.panels[j].check(sources[i].Name, curve); err != nil {
					return f, err
				}
				curve.name = curveName(name, curve.name, len(sources) == 1)
				f.panels[j].curves = append(f.panels[j].curves, curve)
			}
		}
	}
	for _, p := range f.panels {
		slices.SortStableFunc(p.curves, func(a, b curve) int { return int(a.role - b.role) })
	}
	return f, nil
}

// inAll tells whether all have a part of the setup.
func inAll(contents []content, part string) bool {
	return !slices.ContainsFunc(contents, func(c content) bool { return !slices.Contains(c.setup, part) })
}

// curveName returns the label of a curve, with its source's name unless that is understood.
func curveName(source, curve string, understood bool) string {
	switch {
	case curve == "":
		return source
	case understood:
		return curve
	}
	return source + ": " + curve
}
