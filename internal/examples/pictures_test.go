package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	picture = regexp.MustCompile(`(?s)<picture>(.*?)</picture>`)
	source  = regexp.MustCompile(`src(?:set)?="([^"]+)"`)
	altText = regexp.MustCompile(`alt="[^"]+"`)
	color   = regexp.MustCompile(`#[0-9a-f]{6}\b`)
)

// TestPictures checks that each picture of a page has a text and a file for light and one for dark backgrounds, and
// that the two drawings of the overview, which are made by hand, differ in their colors alone.
func TestPictures(t *testing.T) {
	found := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		for _, p := range picture.FindAllString(string(text), -1) {
			found++
			assert.Regexp(t, altText, p, page)
			sources := source.FindAllStringSubmatch(p, -1)
			if !assert.Len(t, sources, 2, "%s: one for dark backgrounds, one for light:\n%s", page, p) {
				continue
			}
			dark, light := sources[0][1], sources[1][1]
			extension := filepath.Ext(light)
			name := strings.TrimSuffix(strings.TrimSuffix(light, extension), "-light")
			assert.Equal(t, name+"-dark"+extension, dark, page)
			for _, file := range []string{dark, light} {
				assert.FileExists(t, filepath.Join(root, filepath.Dir(page), file), page)
			}
		}
	}
	assert.NotZero(t, found)

	light, err := os.ReadFile(root + "/docs/pictures/overview.svg")
	require.NoError(t, err)
	dark, err := os.ReadFile(root + "/docs/pictures/overview-dark.svg")
	require.NoError(t, err)
	assert.Equal(t, color.ReplaceAllString(string(light), "#"), color.ReplaceAllString(string(dark), "#"), "draw both alike")
	assert.NotEqual(t, string(light), string(dark))
}
