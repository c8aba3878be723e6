package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestChangelog checks that CHANGELOG.md has the form of Keep a Changelog, from which releases take their notes.
func TestChangelog(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	require.NoError(t, err)
	assert.Empty(t, changelogProblems(string(text)))
}

var (
	changelogVersion = regexp.MustCompile(`^## \[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})$`)
	changelogLink    = regexp.MustCompile(`(?m)^\[([^\]]+)\]: https://`)
	changelogKinds   = []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
)

// changelogProblems returns what in a changelog is not of the form: the section of what is not released comes first,
// then versions, the newest first, each with its day, its kinds of changes in the usual order, and a link.
func changelogProblems(text string) (problems []string) {
	links := map[string]bool{}
	for _, link := range changelogLink.FindAllStringSubmatch(text, -1) {
		links[link[1]] = true
	}
	var before []int // the version above
	sections, kind := 0, -1
	problem := func(line int, what string) { problems = append(problems, position("CHANGELOG.md", line)+": "+what) }
	for i, line := range strings.Split(text, "\n") {
		if title, ok := strings.CutPrefix(line, "### "); ok {
			at := slices.Index(changelogKinds, title)
			if at <= kind {
				problem(i+1, title+" is none of "+strings.Join(changelogKinds, ", ")+", stands twice or behind a later one")
			}
			kind = at
			continue
		}
		if !strings.HasPrefix(line, "## ") {
			continue
		}
		sections, kind = sections+1, -1
		if sections == 1 {
			if line != "## [Unreleased]" {
				problem(i+1, "the first section is to be [Unreleased]")
			} else if !links["Unreleased"] {
				problem(i+1, "[Unreleased] has no link")
			}
			continue
		}
		version := changelogVersion.FindStringSubmatch(line)
		if version == nil {
			problem(i+1, "want ## [X.Y.Z] - YYYY-MM-DD")
			continue
		}
		if _, err := time.Parse(time.DateOnly, version[4]); err != nil {
			problem(i+1, "the day does not exist")
		}
		var numbers []int
		for _, digits := range version[1:4] {
			n, _ := strconv.Atoi(digits) // the expression has digits only
			numbers = append(numbers, n)
		}
		if before != nil && slices.Compare(numbers, before) >= 0 {
			problem(i+1, "the versions are not the newest first")
		}
		before = numbers
		if name := strings.Join(version[1:4], "."); !links[name] {
			problem(i+1, "["+name+"] has no link")
		}
	}
	if sections == 0 {
		problem(1, "there is no section")
	}
	return problems
}

func TestChangelogProblems(t *testing.T) {
	const links = "\n[Unreleased]: https://x\n[0.2.0]: https://x\n[0.10.0]: https://x\n"
	assert.Empty(t, changelogProblems("# Changelog\n## [Unreleased]\n### Added\n### Fixed\n## [0.10.0] - 2026-11-30\n### Added\n## [0.2.0] - 2026-11-29\n"+links))
	for text, want := range map[string]string{
		"# Changelog\n":                                                                "no section",
		"## Unreleased\n":                                                              "first section",
		"## [Unreleased]\n":                                                            "no link",
		"## [Unreleased]\n### Corrected\n" + links:                                     "Corrected is none of",
		"## [Unreleased]\n### Fixed\n### Added\n" + links:                              "Added is none of",
		"## [Unreleased]\n### Fixed\n### Fixed\n" + links:                              "stands twice",
		"## [Unreleased]\n## 0.2.0\n" + links:                                          "want ##",
		"## [Unreleased]\n## [0.2.0] - 2026-02-30\n" + links:                           "day",
		"## [Unreleased]\n## [0.2.0] - 2026-02-01\n## [0.10.0] - 2026-02-02\n" + links: "newest first",
		"## [Unreleased]\n## [0.3.0] - 2026-02-01\n" + links:                           "[0.3.0] has no link",
	} {
		problems := changelogProblems(text)
		require.Len(t, problems, 1, text)
		assert.Contains(t, problems[0], want, text)
	}
}
