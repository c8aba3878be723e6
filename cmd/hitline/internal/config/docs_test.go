package config

import (
	"encoding"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
)

// referencePage documents every field. Each section with fields has a heading with its
// path in backquotes, "Top level" for the root, and a table with a row for each field.
const referencePage = "../../../../docs/configuration.md"

var (
	pageHeading = regexp.MustCompile("^#+ (?:`([^`]+)`|(.+))$")
	pageRow     = regexp.MustCompile("^\\| `([^`]+)` \\|")
)

// pageRows returns the first cells of the tables in the page, by heading.
func pageRows(page string) map[string][]string {
	rows := map[string][]string{}
	heading := ""
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if m := pageHeading.FindStringSubmatch(line); m != nil {
			heading = m[1] + m[2]
		} else if m := pageRow.FindStringSubmatch(line); m != nil {
			rows[heading] = append(rows[heading], m[1])
		}
	}
	return rows
}

// sectionFields adds the fields of a section, and of those below it, by path. A section of the same fields as one
// before it is documented there.
func sectionFields(all map[string][]string, seen map[reflect.Type]bool, section reflect.Type, path string) {
	if seen[section] {
		return
	}
	seen[section] = true
	all[path] = fieldNames(section)
	for i := range section.NumField() {
		name := tagOf(section.Field(i))
		if name == "" {
			continue
		}
		t, below := section.Field(i).Type, join(path, name)
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
			if t.Kind() == reflect.Slice {
				below += "[]"
			}
			t = t.Elem()
		}
		if t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			sectionFields(all, seen, t, below)
		}
	}
}

// The reference has every field in the table of its section, and no other.
func TestReferencePage(t *testing.T) {
	page, err := os.ReadFile(referencePage)
	require.NoError(t, err)
	rows := pageRows(string(page))

	sections, seen := map[string][]string{}, map[reflect.Type]bool{}
	sectionFields(sections, seen, reflect.TypeFor[Config](), "")
	assert.Contains(t, sections, "pool.groups[]")
	sectionFields(sections, seen, reflect.TypeFor[tokenEntry](), "tokens[]")
	for path, fields := range sections {
		heading := path
		if path == "" {
			heading = "Top level"
		}
		for _, field := range fields {
			assert.Contains(t, rows[heading], field, "%s: no row for %s under the heading %q", referencePage, join(path, field), heading)
		}
		for _, row := range rows[heading] {
			assert.True(t, slices.Contains(fields, row), "%s: the row %q under the heading %q is no field", referencePage, row, heading)
		}
	}

	for kind := coordinator.Kind(0); ; kind++ {
		name, err := kind.MarshalText()
		if err != nil {
			break
		}
		assert.Contains(t, rows["Kinds"], string(name), "%s: no row for the kind %s", referencePage, name)
	}
}

// The reference shows what --explain prints.
func TestReferenceOfExplain(t *testing.T) {
	page, err := os.ReadFile(referencePage)
	require.NoError(t, err)
	_, shown, ok := strings.Cut(string(page), "--loops 2 --check --explain\n")
	require.True(t, ok)
	shown, _, ok = strings.Cut(shown, "      …\n")
	require.True(t, ok)

	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("hitline.yaml", []byte("listen: [tcp://127.0.0.1:7557]\n"), 0o600))
	c, err := Load(Source{File: "hitline.yaml", Environ: []string{"HITLINE_POOL_TP_SIZE=8"}, Flags: Flags{Loops: new(2)}})
	require.NoError(t, err)
	_, text, err := c.Explain()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(text), strings.ReplaceAll(shown, "\n    ", "\n")[4:]), "%s", text)
}

// The reference has the defaults that are in effect, wherever it has a single value.
func TestReferenceDefaults(t *testing.T) {
	page, err := os.ReadFile(referencePage)
	require.NoError(t, err)
	defaults := map[string]any{}
	for _, name := range backendNames {
		c := Default()
		c.Backend.chosen = name
		values, err := c.defaults()
		require.NoError(t, err)
		maps.Copy(defaults, values)
	}
	literal := regexp.MustCompile("^(?:`([^`]*)`|([0-9,]+))$")
	compared, section, column := 0, "", -1
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		switch m := pageHeading.FindStringSubmatch(strings.TrimRight(line, "\n")); {
		case m != nil:
			section = m[1]
		case cells[0] == "| field":
			column = slices.Index(cells, "default")
		case pageRow.MatchString(line) && column > 0 && column < len(cells):
			field := pageRow.FindStringSubmatch(line)[1]
			byDefault, known := defaults[strings.ReplaceAll(join(section, field), "[]", "[0]")]
			written := literal.FindStringSubmatch(cells[column])
			if !known || written == nil || written[1] == "tp_size" { // the default of num_kv_head is another field
				continue
			}
			compared++
			want := strings.Trim(written[1]+strings.ReplaceAll(written[2], ",", ""), `"`)
			if d, err := time.ParseDuration(want); err == nil && want != "0" {
				want = d.String()
			}
			assert.Equal(t, want, strings.ReplaceAll(fmt.Sprint(byDefault), "<nil>", "null"), join(section, field))
		}
	}
	assert.Greater(t, compared, 60)
}
