package picture

// theme is the colours of a figure, as SVG has them.
type theme struct {
	background string
	ink        string // text and axes
	faint      string // what is less than ink: the line below the title, bounds
	grid       string
	palette    []string // of curves and of their labels, so that each can be read as text
}

// The colours of the pages are GitHub's.
var (
	light = theme{
		background: "#ffffff", ink: "#1f2328", faint: "#59636e", grid: "#dde1e6",
		palette: []string{"#0550ae", "#bc4c00", "#1a7f37", "#8250df", "#a40e26", "#0e7490", "#9a6700", "#bf3989"},
	}
	dark = theme{
		background: "#0d1117", ink: "#e6edf3", faint: "#9198a1", grid: "#2a313a",
		palette: []string{"#58a6ff", "#f0883e", "#56d364", "#bc8cff", "#ff7b72", "#39c5cf", "#e3b341", "#f778ba"},
	}
)

// markers are as many as go with the eight colours to 56 curves that differ. They are paths
// around 0, 0; those of the upper half are filled.
var markers = []string{
	"M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z", // circle
	"M-3 -3h6v6h-6z",                      // square
	"M0 -4l4 7h-8z",                       // triangle
	"M0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z", // diamond
	"M0 4l4 -7h-8z",                       // triangle on its tip
	"M-3.5 -3.5l7 7m0 -7l-7 7",            // cross
	"M-4 0h8m-4 -4v8",                     // plus
}

// style is how a curve is drawn.
type style struct {
	colour string
	width  float64
	dashes string
	marker string // a path; empty: none
}

// styles returns the styles of curves. Only measured ones use a colour and a marker up. The
// first of all is drawn bolder.
func (t theme) styles(panels []panel) [][]style {
	styles, next := make([][]style, len(panels)), 0
	for i, p := range panels {
		for _, c := range p.curves {
			s := style{t.palette[next%len(t.palette)], 1.6, "", markers[next%len(markers)]}
			if c.role == bound {
				s = style{t.faint, 1.6, "5 4", ""}
			} else {
				if next == 0 {
					s.width = 2.6
				}
				next++
			}
			styles[i] = append(styles[i], s)
		}
	}
	return styles
}
