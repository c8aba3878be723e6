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

// TestFiguresHaveCommands checks that each table and picture of a measurement stands below a command that makes it, or
// has one, in the same section.
func TestFiguresHaveCommands(t *testing.T) {
	for _, page := range []string{"docs/performance.md", "docs/measurements.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		assert.Empty(t, figuresWithoutCommand(page, string(text)), "figures whose section shows no command that makes them")
	}
}

// figuresWithoutCommand returns where sections have figures and no command in front of their end.
func figuresWithoutCommand(page, text string) []string {
	var missing []string
	figure, command := 0, false
	endFigure := func() {
		if figure > 0 && !command {
			missing = append(missing, position(page, figure))
		}
		figure = 0
	}
	for i, line := range strings.Split(text, "\n") {
		command = command || makesFigures.MatchString(line)
		switch {
		case strings.HasPrefix(line, "#"):
			endFigure()
			command = false
		case strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "<picture>"):
			if figure == 0 {
				figure = i + 1
			}
		case line == "":
			endFigure()
		}
	}
	endFigure()
	return missing
}

// makesFigures matches a line with a command that measures, in back quotes or in a block.
var makesFigures = regexp.MustCompile("(?:`[^`]*|^    .*)(?:hitbench [a-z]|go (?:test|run) |make (?:agree|attack|pictures|bench))")

func TestFiguresWithoutCommand(t *testing.T) {
	const table = "\n| a |\n|---|\n| 1 |\n\n"
	page := "# A\n" + table + "## B\n\n`hitbench run`:\n" + table + "more\n" + table + "## C\n\n<picture>\n</picture>\n\n## D\n\n| `make agree` | 2 |\n"
	assert.Equal(t, []string{"p.md:3", "p.md:23"}, figuresWithoutCommand("p.md", page))
}
