// Package scripts holds the tests of the shell scripts beside it.
package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// checkout is a folder with a copy of scripts/version, and of other files as a test needs them.
type checkout struct {
	t      *testing.T
	folder string
}

func newCheckout(t *testing.T) checkout {
	for _, tool := range []string{"bash", "git"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	c := checkout{t, t.TempDir()}
	c.copyScripts("version")
	return c
}

// copyScripts copies scripts of this folder.
func (c checkout) copyScripts(names ...string) {
	c.t.Helper()
	for _, name := range names {
		script, err := os.ReadFile(name)
		require.NoError(c.t, err)
		c.write(filepath.Join("scripts", name), string(script), 0o755)
	}
}

func (c checkout) write(name, text string, mode os.FileMode) {
	c.t.Helper()
	path := filepath.Join(c.folder, name)
	require.NoError(c.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(c.t, os.WriteFile(path, []byte(text), mode))
}

// run returns what a program prints in the checkout.
func (c checkout) run(program string, args ...string) string {
	c.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = c.folder
	cmd.Env = append(os.Environ(), "HITLINE_TAG=", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "TZ=Asia/Tokyo",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_AUTHOR_DATE=2026-01-02T03:04:05+09:00", "GIT_COMMITTER_DATE=2026-01-02T03:04:05+09:00")
	out, err := cmd.Output()
	require.NoError(c.t, err, args)
	return strings.TrimSpace(string(out))
}

// commit makes a commit and returns the first 12 digits of its hash.
func (c checkout) commit(message string) string {
	c.run("git", "add", ".")
	c.run("git", "commit", "--quiet", "--allow-empty", "-m", message)
	return c.run("git", "rev-parse", "HEAD")[:12]
}

// versions returns the version as SemVer, for PyPI and for Debian.
func (c checkout) versions() [3]string {
	c.t.Helper()
	return [3]string{c.run("scripts/version"), c.run("scripts/version", "--pep440"), c.run("scripts/version", "--debian")}
}

func (c checkout) released() bool {
	cmd := exec.Command("env", "HITLINE_TAG=", "scripts/version", "--is-release")
	cmd.Dir = c.folder
	return cmd.Run() == nil
}

func TestVersion(t *testing.T) {
	c := newCheckout(t)
	assert.Equal(t, [3]string{"0.1.0-dev.0", "0.1.0.dev0", "0.1.0~dev.0"}, c.versions(), "without a repository")
	assert.Equal(t, "315532800", c.run("scripts/version", "--time"))
	assert.Empty(t, c.run("scripts/version", "--commit"))

	c.run("git", "init", "--quiet")
	first := c.commit("first")
	c.run("git", "tag", "v0.9")
	c.run("git", "tag", "nightly-1.2.3")
	assert.Equal(t, [3]string{"0.1.0-dev.1.g" + first, "0.1.0.dev1+g" + first, "0.1.0~dev.1.g" + first}, c.versions())
	assert.False(t, c.released())

	c.run("git", "tag", "v0.1.0-rc.2")
	c.run("git", "tag", "-a", "-m", "annotated", "v0.1.0-rc.10")
	assert.Equal(t, [3]string{"0.1.0-rc.10", "0.1.0rc10", "0.1.0~rc.10"}, c.versions())
	assert.True(t, c.released())
	second := c.commit("second")
	assert.Equal(t, [3]string{"0.1.0-rc.10.dev.1.g" + second, "0.1.0rc11.dev1+g" + second, "0.1.0~rc.10.dev.1.g" + second}, c.versions())

	c.run("git", "tag", "v0.1.0-rc.11")
	c.run("git", "tag", "v0.1.0")
	assert.Equal(t, [3]string{"0.1.0", "0.1.0", "0.1.0"}, c.versions(), "a release counts more than its candidate")
	assert.True(t, c.released())
	assert.Equal(t, "1767290645", c.run("scripts/version", "--time"))
	assert.Equal(t, "2026-01-01T18:04:05Z", c.run("scripts/version", "--date"))
	hash := c.run("scripts/version", "--commit")
	assert.Equal(t, second, hash[:12])
	const variable = " -X github.com/hitline/hitline/internal/buildinfo."
	assert.Equal(t, "-s -w"+variable+"version=0.1.0"+variable+"commit="+hash+variable+"date=2026-01-01T18:04:05Z", c.run("scripts/version", "--ldflags"))

	require.NoError(t, os.WriteFile(filepath.Join(c.folder, "new"), nil, 0o644))
	assert.Equal(t, [3]string{"0.1.1-dev.0.g" + second + ".dirty", "0.1.1.dev0+g" + second + ".dirty", "0.1.1~dev.0.g" + second + ".dirty"}, c.versions())
	assert.Equal(t, hash+"+dirty", c.run("scripts/version", "--commit"))
	assert.False(t, c.released(), "with changes it is not what was tagged")

	c.run("git", "config", "status.showUntrackedFiles", "no")
	assert.False(t, c.released(), "whatever git status shows to users")

	third := c.commit("third")
	assert.Equal(t, [3]string{"0.1.1-dev.1.g" + third, "0.1.1.dev1+g" + third, "0.1.1~dev.1.g" + third}, c.versions())
	require.NoError(t, os.WriteFile(filepath.Join(c.folder, ".git", "index"), []byte("broken"), 0o644))
	c.run("git", "tag", "v0.1.1")
	assert.False(t, c.released(), "git cannot tell what has changed")
}

// A merged branch of an older version does not take the version back.
func TestVersionAfterMaintenance(t *testing.T) {
	c := newCheckout(t)
	c.run("git", "init", "--quiet", "--initial-branch=main")
	c.commit("first")
	c.run("git", "tag", "v0.1.0")
	c.run("git", "checkout", "--quiet", "-b", "maintenance")
	c.commit("a fix")
	c.run("git", "tag", "v0.1.1")
	assert.Equal(t, "0.1.1", c.run("scripts/version"))
	c.run("git", "checkout", "--quiet", "main")
	c.commit("second")
	c.run("git", "tag", "v0.2.0")
	c.run("git", "merge", "--quiet", "--no-edit", "maintenance")
	assert.Equal(t, "0.2.1-dev.2.g"+c.run("git", "rev-parse", "HEAD")[:12], c.run("scripts/version"))
}

// A run that a tag has started has the version of that tag, whatever other tags the commit gets.
func TestVersionOfATag(t *testing.T) {
	c := newCheckout(t)
	c.run("git", "init", "--quiet")
	c.commit("first")
	c.run("git", "tag", "v0.1.08") // no version has leading zeros
	assert.False(t, c.released())
	c.run("git", "tag", "v0.1.0-rc.1")
	c.run("git", "tag", "v0.1.0")
	assert.Equal(t, "0.1.0", c.run("scripts/version"))
	assert.Equal(t, "0.1.0-rc.1", c.run("env", "HITLINE_TAG=v0.1.0-rc.1", "scripts/version"))
	for _, tag := range []string{"v0.1.08", "v0.1.1", "HEAD", "v0.1.0-rc"} {
		cmd := exec.Command("env", "HITLINE_TAG="+tag, "scripts/version")
		cmd.Dir = c.folder
		assert.Error(t, cmd.Run(), tag)
	}
	c.commit("second")
	cmd := exec.Command("env", "HITLINE_TAG=v0.1.0", "scripts/version")
	cmd.Dir = c.folder
	assert.Error(t, cmd.Run(), "it is the tag of another commit")
}
