package diagnosis

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// fitsOf reads a table with a word for each group. An x marks a description that fits.
func fitsOf(table string) func(g, description int) bool {
	rows := strings.Fields(table)
	return func(g, description int) bool { return rows[g][description] == 'x' }
}

// A matching moves no group without need.
func TestMatchDescriptions(t *testing.T) {
	for _, test := range []struct {
		fits string
		want []int
	}{
		{"x", []int{0}},
		{".", nil},
		{"xx xx", []int{0, 1}},
		{".x x.", []int{1, 0}},
		{".x xx", []int{1, 0}},
		{".x .x", nil},
		{"x.x xx. ..x", []int{0, 1, 2}},
		{".x. ..x x..", []int{1, 2, 0}},
		{"xxx xxx x..", []int{2, 1, 0}},
		{"..x xxx xxx", []int{2, 1, 0}},
		{".x.. x.xx xxxx xxxx", []int{1, 0, 2, 3}},
	} {
		n := len(strings.Fields(test.fits))
		assert.Equal(t, test.want, matchDescriptions(n, fitsOf(test.fits)), test.fits)
	}
}
