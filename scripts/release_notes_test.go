package scripts

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

// releaseNotes returns what scripts/release-notes prints of a changelog, and whether it succeeds.
func releaseNotes(t *testing.T, changelog, version string) (string, bool) {
	t.Helper()
	c := newCheckout(t)
	c.copyScripts("release-notes", "absolute-links")
	c.write("CHANGELOG.md", changelog, 0o644)
	out, err := exec.Command("bash", filepath.Join(c.folder, "scripts", "release-notes"), version).Output()
	return string(out), err == nil
}

func TestReleaseNotes(t *testing.T) {
	const changelog = `# Changelog

## [Unreleased]

### Added

- What comes next.

## [0.2.0] - 2026-12-01

### Fixed

- A link ([page](docs/install.md#part)), one that leads out ([site](https://example.org/a)), one to [here](#020).

## [0.1.0] - 2026-11-24

- The first.

[0.1.0]: https://example.org/v0.1.0
`
	page := func(version string) string {
		return "### Fixed\n\n- A link ([page](https://github.com/hitline/hitline/blob/v" + version +
			"/docs/install.md#part)), one that leads out ([site](https://example.org/a)), one to [here](#020).\n"
	}
	for version, want := range map[string]string{
		"0.1.0": "- The first.\n", "0.2.0": page("0.2.0"), "0.2.0-rc.1": page("0.2.0-rc.1"),
		"0.3.0-rc.1": "### Added\n\n- What comes next.\n",
	} {
		notes, ok := releaseNotes(t, changelog, version)
		assert.True(t, ok, version)
		assert.Equal(t, want, notes, version)
	}

	// A release without notes is a mistake, not an empty page.
	for _, version := range []string{"0.3.0", "0.2", "Unreleased", "v0.2.0"} {
		notes, ok := releaseNotes(t, changelog, version)
		assert.False(t, ok, version)
		assert.Empty(t, notes, version)
	}
}
