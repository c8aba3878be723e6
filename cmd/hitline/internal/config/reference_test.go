package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the reference in docs/configuration.md")

const (
	referencePage  = "../../../../docs/configuration.md"
	referenceBegin = "<!-- From here on go test ./cmd/hitline/internal/config -update writes this page. -->\n"
)

// The page has the reference as it is in the code.
func TestReferencePage(t *testing.T) {
	page, err := os.ReadFile(referencePage)
	require.NoError(t, err)
	before, _, found := strings.Cut(string(page), referenceBegin)
	require.True(t, found)
	want := before + referenceBegin + referenceText(t)
	if *update {
		require.NoError(t, os.WriteFile(referencePage, []byte(want), 0o600))
		page = []byte(want)
	}
	assert.Equal(t, want, string(page), "go test ./cmd/hitline/internal/config -update writes it")
}

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

// The examples of the page are right.
func TestPageExamples(t *testing.T) {
	page, err := os.ReadFile(referencePage)
	require.NoError(t, err)
	examples := yamlBlock.FindAllSubmatch(page, -1)
	require.Len(t, examples, 2)
	for _, example := range examples {
		load(t, string(example[1]))
	}
}

// referenceText returns the part of the page that is generated.
func referenceText(t *testing.T) string {
	defaults, err := Load(Source{})
	require.NoError(t, err)
	values := map[string]reflect.Value{}
	for path, value := range fieldsBelow(fieldsOf(defaults), "") {
		values[path] = value
	}
	var text strings.Builder
	for _, section := range reference {
		title := "`" + section.path + "`"
		switch section.path {
		case "":
			title = "Top level"
		case "tokens[]":
			title = "The tokens file"
		}
		fmt.Fprintf(&text, "\n### %s\n\n", title)
		if section.about != "" {
			text.WriteString(section.about + "\n\n")
		}
		text.WriteString("field|default|what\n---|---|---\n")
		for _, s := range section.settings {
			unset, of := s.unset, reflect.TypeFor[int64]()
			value, ok := values[join(section.path, s.name)]
			if ok {
				of = value.Type()
			}
			if ok && unset == "" && !isSection(of) {
				text, err := yaml.MarshalWithOptions(value.Interface(), yaml.CustomMarshaler(quoted))
				require.NoError(t, err)
				unset = "`" + strings.Trim(strings.Replace(string(text), "m0s", "m", 1), "\n") + "`"
			}
			suffix := s.allowed.suffix(of)
			if strings.HasPrefix(section.path, "router.models") {
				suffix = "" // those of router
			}
			fmt.Fprintf(&text, "`%s`|%s|%s\n", s.name, unset, s.what+suffix)
		}
	}
	return text.String()
}

// suffix returns bounds and words as the page has them. of is the type of the value.
func (a allowed) suffix(of reflect.Type) string {
	text := func(n int64) string {
		return strings.Replace(fmt.Sprint(reflect.ValueOf(n).Convert(of)), "h0m0s", "h", 1)
	}
	switch {
	case a.words != nil:
		return " (`" + strings.Join(a.words, "`, `") + "`)"
	case a.max > 0:
		return " (" + text(a.min) + " to " + text(a.max) + ")"
	case a.min > 1:
		return " (at least " + text(a.min) + ")"
	}
	return ""
}

// Every field has a setting, in its section, and every setting is of a field.
func TestReferenceHasEveryField(t *testing.T) {
	var fields []string
	var walk func(of reflect.Type, path string)
	walk = func(of reflect.Type, path string) {
		for of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() == reflect.Slice {
			path, of = path+"[]", of.Elem()
		}
		if !isSection(of) || path == "router.listen" || path == "router.models[].groups[]" {
			return
		}
		for i := range of.NumField() {
			if name := tagOf(of.Field(i)); name != "" {
				fields = append(fields, join(path, name))
				walk(of.Field(i).Type, join(path, name))
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	walk(reflect.TypeFor[tokensFile](), "")
	var settings []string
	for path := range allowedAt {
		settings = append(settings, path)
	}
	assert.ElementsMatch(t, fields, append(settings, "tokens"))
}
