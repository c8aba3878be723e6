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

// Nothing is published of a commit without a tag, or of files that are not those that were built.
func TestPublishGitHub(t *testing.T) {
	c := newCheckout(t, "publish-github", "release-files", "release-notes", "absolute-links")
	c.write(".gitignore", "/dist/\n/gh/\n")
	c.write("CHANGELOG.md", "# Changelog\n\n## [0.1.0] - 2026-12-01\n\n- The first.\n")
	// A gh that writes down what it is called with. There is a release if THERE is set.
	log := filepath.Join(t.TempDir(), "log")
	c.write("gh/gh", "#!/bin/sh\necho \"$@\" >>"+log+"\n[ \"$1 $2\" != 'release view' ] || [ -n \"$THERE\" ]\n")
	publish := func(env ...string) (calls, out string, code int) {
		out, code = c.call(append(env, "PATH="+filepath.Join(c.folder, "gh")+":"+os.Getenv("PATH")), "scripts/publish-github")
		text, _ := os.ReadFile(log)
		_ = os.Remove(log)
		return string(text), out, code
	}
	refused := func(reason string) {
		t.Helper()
		calls, out, code := publish()
		assert.NotZero(t, code)
		assert.Contains(t, out, reason)
		assert.Empty(t, calls)
	}

	c.commit("first")
	refused("is no release: tag the commit")
	c.run("git", "tag", "v0.1.0")
	refused("run make snapshot")
	sums := ""
	for _, name := range []string{"hitline.deb", "wheels/hitline.whl", "chart/hitline.tgz"} {
		c.write("dist/"+name, name)
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(name)), filepath.Base(name))
	}
	c.write("dist/checksums.txt", sums)
	c.write("dist/chart/hitline.tgz", "other")
	refused("has another digest")
	require.NoError(t, os.Remove(filepath.Join(c.folder, "dist/hitline.deb")))
	refused("there is no hitline.deb")
	c.write("dist/hitline.deb", "hitline.deb")
	c.write("dist/chart/hitline.tgz", "chart/hitline.tgz")

	const upload = "upload v0.1.0 --clobber dist/checksums.txt dist/hitline.deb dist/wheels/hitline.whl dist/chart/hitline.tgz\n"
	calls, out, code := publish()
	require.Zero(t, code, out)
	assert.Equal(t, 4, strings.Count(calls, "release "))
	assert.Contains(t, calls, "create v0.1.0 --draft --verify-tag")
	assert.Contains(t, calls, upload)
	assert.Regexp(t, `edit v0\.1\.0 --draft=false .*--prerelease=false --latest=true`, calls)

	calls, _, _ = publish("THERE=1") // as after a failure
	assert.NotContains(t, calls, "create")
	assert.Contains(t, calls, upload)

	c.run("git", "tag", "v0.2.0")
	c.run("git", "tag", "v0.1.0-rc.1")
	calls, _, _ = publish("HITLINE_TAG=v0.1.0")
	assert.Contains(t, calls, "--prerelease=false --latest=false", "there is a later release")
	calls, _, _ = publish("HITLINE_TAG=v0.1.0-rc.1")
	assert.Contains(t, calls, "edit v0.1.0-rc.1 --draft=false")
	assert.Contains(t, calls, "--prerelease=true --latest=false")
}

// Only a release's chart is pushed, and with the time of its commit, which helm writes into what it pushes: a second
// run pushes the same.
func TestPublishChart(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	c := newCheckout(t)
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	c.write("Makefile", string(makefile))
	c.write(".gitignore", "/dist/\n")
	c.write("scripts/tool", "#!/bin/sh\nstat -c '%Y %n' \"$3\"\necho \"to $4\"\n")
	c.commit("first")
	publish := func() (string, int) {
		return c.call(nil, "make", "-s", "publish-chart", "CHARTS=oci://127.0.0.1:5000/charts")
	}
	c.write("dist/chart/hitline-0.1.0.tgz", "chart")
	out, code := publish()
	assert.NotZero(t, code)
	assert.Contains(t, out, "is no release: tag the commit")
	c.run("git", "tag", "v0.1.0")
	out, code = publish()
	assert.Zero(t, code, out)
	assert.Equal(t, c.run("scripts/version", "--time")+" dist/chart/hitline-0.1.0.tgz\nto oci://127.0.0.1:5000/charts", out)
}
