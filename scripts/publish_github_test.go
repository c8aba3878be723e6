package scripts

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// release is a checkout with the files of a release, and a gh that writes down what it is called with.
type release struct {
	checkout
	log string
}

func newRelease(t *testing.T) release {
	c := newCheckout(t)
	c.copyScripts("publish-github", "release-files", "release-notes", "absolute-links")
	c.write(".gitignore", "/dist/\n/gh/\n", 0o644)
	c.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n- What comes.\n\n## [0.1.0] - 2026-12-01\n\n- The first.\n", 0o644)
	log := filepath.Join(t.TempDir(), "log")
	c.write("gh/gh", `#!/bin/sh
echo "$@" >>`+log+`
while [ $# -gt 0 ]; do
	[ "$1" != --notes-file ] || grep . "$2" >>`+log+`
	shift
done
[ -n "$THERE" ] || ! tail -n 1 `+log+` | grep -q "^release view"
`, 0o755)
	sums := ""
	for _, name := range []string{"hitline.deb", "wheels/hitline.whl", "chart/hitline.tgz"} {
		c.write("dist/"+name, name, 0o644)
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(name)), filepath.Base(name))
	}
	c.write("dist/checksums.txt", sums, 0o644)
	c.run("git", "init", "--quiet")
	c.commit("first")
	return release{c, log}
}

// publish returns what the script prints, and the calls of gh.
func (r release) publish(env ...string) (out, calls string, err error) {
	r.t.Helper()
	cmd := exec.Command("scripts/publish-github")
	cmd.Dir = r.folder
	cmd.Env = append(append(os.Environ(), "HITLINE_TAG=", "THERE=", "PATH="+filepath.Join(r.folder, "gh")+":"+os.Getenv("PATH")), env...)
	text, err := cmd.CombinedOutput()
	log, _ := os.ReadFile(r.log)
	_ = os.Remove(r.log)
	return string(text), string(log), err
}

func TestPublishGitHub(t *testing.T) {
	r := newRelease(t)
	out, calls, err := r.publish()
	require.Error(t, err)
	assert.Contains(t, out, "is no release: tag the commit")
	assert.Empty(t, calls)

	r.run("git", "tag", "v0.1.0-rc.1")
	const files = "dist/checksums.txt dist/hitline.deb dist/wheels/hitline.whl dist/chart/hitline.tgz\n"
	_, calls, err = r.publish()
	require.NoError(t, err)
	assert.Equal(t, "release view v0.1.0-rc.1\n"+
		"release create v0.1.0-rc.1 --draft --verify-tag --title v0.1.0-rc.1 --notes-file FILE --prerelease=true --latest=false\n- The first.\n"+
		"release upload v0.1.0-rc.1 --clobber "+files+
		"release edit v0.1.0-rc.1 --draft=false --notes-file FILE --prerelease=true --latest=false\n- The first.\n", withoutNames(calls))

	r.run("git", "tag", "v0.1.0")
	_, calls, err = r.publish("THERE=1") // as after a failure
	require.NoError(t, err)
	assert.Equal(t, "release view v0.1.0\nrelease upload v0.1.0 --clobber "+files+
		"release edit v0.1.0 --draft=false --notes-file FILE --prerelease=false --latest=true\n- The first.\n", withoutNames(calls))
	_, calls, err = r.publish("HITLINE_TAG=v0.1.0-rc.1")
	require.NoError(t, err)
	assert.Contains(t, calls, "release edit v0.1.0-rc.1 ")

	r.run("git", "tag", "v0.2.0", "HEAD~0")
	_, calls, err = r.publish("HITLINE_TAG=v0.1.0")
	require.NoError(t, err)
	assert.Contains(t, calls, "--latest=false\n- The first.\n", "there is a later release")
}

// Nothing is published of files that are not those that were built.
func TestPublishGitHubChecksFiles(t *testing.T) {
	for what, change := range map[string]func(r release){
		"has another digest":    func(r release) { r.write("dist/chart/hitline.tgz", "other", 0o644) },
		"there is no hitline.d": func(r release) { require.NoError(r.t, os.Remove(filepath.Join(r.folder, "dist/hitline.deb"))) },
		"run make snapshot":     func(r release) { require.NoError(r.t, os.RemoveAll(filepath.Join(r.folder, "dist"))) },
		"has nothing under":     func(r release) { r.write("CHANGELOG.md", "# Changelog\n", 0o644); r.commit("no notes") },
	} {
		r := newRelease(t)
		change(r)
		r.run("git", "tag", "v0.1.0")
		out, calls, err := r.publish()
		require.Error(t, err, what)
		assert.Contains(t, out, what)
		assert.Empty(t, calls, what)
	}
}

// withoutNames replaces the names of temporary files.
func withoutNames(calls string) string {
	words := strings.Split(calls, " ")
	for i := 1; i < len(words); i++ {
		if words[i-1] == "--notes-file" {
			words[i] = "FILE"
		}
	}
	return strings.Join(words, " ")
}
