package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// templateSections returns the sections of a template by their first two lines, without the # before each line.
func templateSections(text string) map[string]string {
	sections := map[string]string{}
	for block := range strings.SplitSeq(text, "\n\n") {
		var lines []string
		for line := range strings.Lines(block + "\n") {
			if yaml, ok := strings.CutPrefix(line, "#"); ok && !strings.HasPrefix(yaml, " ") && yaml != "\n" || strings.HasPrefix(yaml, "  ") {
				lines = append(lines, yaml)
			}
		}
		if len(lines) > 0 {
			sections[strings.Join(strings.Fields(strings.Join(lines[:min(2, len(lines))], "")), " ")] = strings.Join(lines, "")
		}
	}
	return sections
}

// As it is written, the template changes nothing.
func TestTemplateIsTheDefaults(t *testing.T) {
	defaults, err := Load(Source{})
	require.NoError(t, err)
	text, err := Template("")
	require.NoError(t, err)
	assert.Equal(t, defaults, load(t, text))
	for _, name := range backendNames {
		text, err := Template(name)
		require.NoError(t, err)
		c := load(t, text)
		assert.Equal(t, name, c.Backend.Name())
		assert.Regexp(t, `:[0-9]+:3$`, c.origins.find("backend."+name).String(), "it is the file's")
		assert.Equal(t, strings.ReplaceAll(template, "\n#", "\n"), strings.ReplaceAll(text, "\n#", "\n"))
	}
	_, err = Template("etcd")
	require.EqualError(t, err, `unknown backend "etcd"; use memory, redis or mooncake`)
}

// Each of its sections is read if its lines are no longer comments.
func TestTemplateSections(t *testing.T) {
	sections := templateSections(template)
	require.NotEmpty(t, sections)
	for name, text := range sections {
		t.Run(name, func(t *testing.T) { load(t, text) })
	}
}
