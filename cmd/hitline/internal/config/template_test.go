package config

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

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
	for line := range strings.Lines(text) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
		assert.True(t, strings.HasPrefix(line, "#") || line == "\n", line)
	}
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

// Each of its sections can be read, and has the defaults but for what it calls examples.
func TestTemplateSections(t *testing.T) {
	sections := templateSections(template)
	require.Len(t, sections, 14)
	for name, text := range sections {
		t.Run(name, func(t *testing.T) {
			c := load(t, text)
			defaults, err := c.defaults()
			require.NoError(t, err)
			values, err := valuesOf([]byte(text))
			require.NoError(t, err)
			lines := strings.Split(text, "\n")
			for _, v := range values {
				line := lines[v.line]
				byDefault, known := defaults[c.defaultPath(v.Path)]
				isDefault := known && reflect.DeepEqual(byDefault, v.Value) || v.Value == nil || reflect.ValueOf(v.Value).IsZero() || reflect.ValueOf(v.Value).Kind() == reflect.Slice
				switch {
				case strings.Contains(line, "# example"):
					assert.False(t, known && reflect.DeepEqual(byDefault, v.Value), "it is the default: %s", line)
				case strings.Contains(line, "# default: that of fleet"), strings.Contains(line, "# likewise"), strings.HasPrefix(v.Path, "listen"), strings.HasSuffix(v.Path, "enable_kv_transfer"):
				default:
					assert.True(t, isDefault, "it is not the default, %v: %s", byDefault, line)
				}
			}
		})
	}
}

// commentedField is a field that another one excludes.
var commentedField = regexp.MustCompile(`(?m)^( +)# ([a-z_]+: \S+)`)

// It has every field of every section, and the same as the reference.
func TestTemplateHasEveryField(t *testing.T) {
	written := map[string]bool{}
	for _, text := range templateSections(template) {
		values, err := valuesOf([]byte(commentedField.ReplaceAllString(text, "$1$2")))
		require.NoError(t, err)
		for _, v := range values {
			path := listIndex.ReplaceAllString(v.Path, "[]")
			for path != "" {
				written[path] = true
				path = path[:max(0, strings.LastIndexAny(path, ".["))]
			}
		}
	}
	sections, seen := map[string][]string{}, map[reflect.Type]bool{}
	sectionFields(sections, seen, reflect.TypeFor[Config](), "")
	for path, fields := range sections {
		for _, field := range fields {
			assert.True(t, written[join(path, field)], "template.yaml has no %s", join(path, field))
		}
	}
}
