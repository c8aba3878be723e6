package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/vg"
)

// drawing is what the tests look at of an SVG.
type drawing struct {
	width, height float64
	texts         []string
}

// matrix is an affine transformation: x' = ax + cy + e, y' = bx + dy + f.
type matrix struct{ a, b, c, d, e, f float64 }

func (m matrix) times(n matrix) matrix {
	return matrix{
		m.a*n.a + m.c*n.b, m.b*n.a + m.d*n.b, m.a*n.c + m.c*n.d, m.b*n.c + m.d*n.d,
		m.a*n.e + m.c*n.f + m.e, m.b*n.e + m.d*n.f + m.f,
	}
}

var operation = regexp.MustCompile(`(scale|translate|rotate)\(([^)]*)\)`)

// transform reads a transform attribute.
func transform(t *testing.T, text string) matrix {
	m := matrix{a: 1, d: 1}
	for _, op := range operation.FindAllStringSubmatch(text, -1) {
		var v []float64
		for _, field := range strings.FieldsFunc(op[2], func(r rune) bool { return r == ',' || r == ' ' }) {
			n, err := strconv.ParseFloat(field, 64)
			require.NoError(t, err)
			v = append(v, n)
		}
		switch op[1] {
		case "scale":
			m = m.times(matrix{a: v[0], d: v[len(v)-1]})
		case "translate":
			m = m.times(matrix{a: 1, d: 1, e: v[0], f: v[1]})
		case "rotate":
			sin, cos := math.Sincos(v[0] * math.Pi / 180)
			m = m.times(matrix{a: cos, b: sin, c: -sin, d: cos})
		}
	}
	return m
}

// parseSVG reads a drawing, and fails unless it is well-formed, has curves, and
// has all its text inside.
func parseSVG(t *testing.T, content []byte) drawing {
	t.Helper()
	var d drawing
	paths := 0
	stack := []matrix{{a: 1, d: 1}}
	decoder := xml.NewDecoder(bytes.NewReader(content))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			attr := map[string]string{}
			for _, a := range e.Attr {
				attr[a.Name.Local] = a.Value
			}
			at := stack[len(stack)-1].times(transform(t, attr["transform"]))
			stack = append(stack, at)
			switch e.Name.Local {
			case "svg":
				_, err := fmt.Sscanf(attr["viewBox"], "0 0 %g %g", &d.width, &d.height)
				require.NoError(t, err)
			case "path":
				paths++
			case "text":
				var text string
				require.NoError(t, decoder.DecodeElement(&text, &e))
				stack = stack[:len(stack)-1] // its end is read
				d.inside(t, at, attr, text)
				d.texts = append(d.texts, text)
			}
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		}
	}
	assert.Len(t, stack, 1)
	assert.Greater(t, paths, 10)
	return d
}

var fontSize = regexp.MustCompile(`font-size:([0-9.]+)px`)

// inside fails unless the corners of a text are inside the drawing.
func (d drawing) inside(t *testing.T, m matrix, attr map[string]string, text string) {
	number := func(s string) float64 {
		n, err := strconv.ParseFloat(s, 64)
		require.NoError(t, err)
		return n
	}
	size := fontSize.FindStringSubmatch(attr["style"])
	require.NotEmpty(t, size, "%s: %v", text, attr)
	assert.Contains(t, attr["style"], "sans-serif", "a font that every machine has")
	points := number(size[1])
	x, y := number(attr["x"]), number(attr["y"])
	long := float64(light.write(vg.Length(points), light.ink).Width(text))
	for _, corner := range [][2]float64{{x, y + 0.22*points}, {x + long, y + 0.22*points}, {x, y - 0.75*points}, {x + long, y - 0.75*points}} {
		px, py := m.a*corner[0]+m.c*corner[1]+m.e, m.b*corner[0]+m.d*corner[1]+m.f
		assert.True(t, px >= 0 && px <= d.width && py >= 0 && py <= d.height, "%q reaches %.1f, %.1f of %v, %v", text, px, py, d.width, d.height)
	}
}
