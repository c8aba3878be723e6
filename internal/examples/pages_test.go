package examples

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWidthOfPages checks that no line of a Markdown page, tables aside, has more than 120 columns.
func TestWidthOfPages(t *testing.T) {
	pages := 0
	for file := range repositoryFiles(t) {
		if path.Ext(file) != ".md" {
			continue
		}
		pages++
		text, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			if width := utf8.RuneCountInString(strings.TrimRight(line, "\n")); width > 120 && !strings.HasPrefix(strings.TrimLeft(line, " "), "|") {
				t.Errorf("%s:%d has %d columns, at most 120", file, number, width)
			}
		}
	}
	assert.Greater(t, pages, 40)
}

// TestArchitectureNamesAllPackages checks that docs/architecture.md names every package, and every module of its own.
func TestArchitectureNamesAllPackages(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	require.NoError(t, err)
	list := func(name string, args ...string) []string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Stderr = root, os.Stderr
		text, err := cmd.Output()
		require.NoError(t, err)
		return strings.Fields(string(text))
	}
	packages := append(list("go", "list", "./..."), list("scripts/test", "--modules")...)
	for _, name := range packages {
		name = strings.TrimPrefix(name, "github.com/hitline/hitline/")
		if name == "scripts" { // which has tests alone
			continue
		}
		assert.Contains(t, string(page), "`"+name+"`", "docs/architecture.md")
	}
	assert.Greater(t, len(packages), 40)
}

// TestNoSymbolicLinks checks that the repository has none: a module that go install fetches would lack them.
func TestNoSymbolicLinks(t *testing.T) {
	for file := range repositoryFiles(t) {
		info, err := os.Lstat(filepath.Join(root, file))
		require.NoError(t, err)
		assert.Zero(t, info.Mode()&fs.ModeSymlink, file)
	}
}
