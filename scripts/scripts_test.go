// Package scripts holds the tests of the shell scripts in this folder.
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

// checkout is a folder with copies of scripts, and of other files as a test needs them.
type checkout struct {
	t      *testing.T
	folder string
}

func newCheckout(t *testing.T, scripts ...string) checkout {
	for _, tool := range []string{"bash", "git", "perl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	c := checkout{t, t.TempDir()}
	for _, name := range append(scripts, "version") {
		script, err := os.ReadFile(name)
		require.NoError(t, err)
		c.write(filepath.Join("scripts", name), string(script))
	}
	return c
}

func (c checkout) write(name, text string) {
	c.t.Helper()
	path := filepath.Join(c.folder, name)
	require.NoError(c.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(c.t, os.WriteFile(path, []byte(text), 0o755))
}

// call returns all that a program prints in the checkout, and its exit code.
func (c checkout) call(env []string, program string, args ...string) (string, int) {
	cmd := exec.CommandContext(c.t.Context(), program, args...)
	cmd.Dir = c.folder
	cmd.Env = append(append(os.Environ(), "HITLINE_TAG=", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "TZ=Asia/Tokyo",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_AUTHOR_DATE=2026-01-02T03:04:05+09:00", "GIT_COMMITTER_DATE=2026-01-02T03:04:05+09:00"), env...)
	out, _ := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
}

// run returns what a program prints that succeeds.
func (c checkout) run(program string, args ...string) string {
	c.t.Helper()
	out, code := c.call(nil, program, args...)
	require.Zero(c.t, code, "%s %v: %s", program, args, out)
	return out
}

// commit makes a commit and returns the first 12 digits of its hash.
func (c checkout) commit(message string) string {
	c.run("git", "init", "--quiet", "--initial-branch=main")
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
	_, code := c.call(nil, "scripts/version", "--is-release")
	return code == 0
}

func TestVersion(t *testing.T) {
	c := newCheckout(t)
	assert.Equal(t, [3]string{"0.1.0-dev.0", "0.1.0.dev0", "0.1.0~dev.0"}, c.versions(), "without a repository")
	assert.Equal(t, "315532800", c.run("scripts/version", "--time"))
	assert.Empty(t, c.run("scripts/version", "--commit"))

	first := c.commit("first")
	c.run("git", "tag", "nightly-1.2.3")
	c.run("git", "tag", "v0.1.08") // no version has leading zeros
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
	assert.Equal(t, "1767290645", c.run("scripts/version", "--time"))
	hash := c.run("scripts/version", "--commit")
	const variable = " -X github.com/hitline/hitline/internal/buildinfo."
	assert.Equal(t, "-s -w"+variable+"version=0.1.0"+variable+"commit="+hash+variable+"date=2026-01-01T18:04:05Z", c.run("scripts/version", "--ldflags"))

	// A run that a tag has started has the version of that tag, whatever other tags the commit gets.
	for tag, want := range map[string]string{"v0.1.0-rc.11": "0.1.0-rc.11", "v0.1.08": "", "v0.1.1": "", "HEAD": "", "v0.1.0-rc.10": ""} {
		out, code := c.call([]string{"HITLINE_TAG=" + tag}, "scripts/version")
		assert.Equal(t, want != "", code == 0, "%s: %s", tag, out)
		if want != "" {
			assert.Equal(t, want, out)
		}
	}

	c.run("git", "config", "status.showUntrackedFiles", "no")
	c.write("new", "")
	assert.Equal(t, [3]string{"0.1.1-dev.0.g" + second + ".dirty", "0.1.1.dev0+g" + second + ".dirty", "0.1.1~dev.0.g" + second + ".dirty"}, c.versions())
	assert.Equal(t, hash+"+dirty", c.run("scripts/version", "--commit"))
	assert.False(t, c.released(), "with changes it is not what was tagged, whatever git status shows to users")
}

// A merged branch of an older version does not take the version back.
func TestVersionAfterMaintenance(t *testing.T) {
	c := newCheckout(t)
	c.commit("first")
	c.run("git", "tag", "v0.1.0")
	c.run("git", "checkout", "--quiet", "-b", "maintenance")
	c.commit("a fix")
	c.run("git", "tag", "v0.1.1")
	c.run("git", "checkout", "--quiet", "main")
	c.commit("second")
	c.run("git", "tag", "v0.2.0")
	c.run("git", "merge", "--quiet", "--no-edit", "maintenance")
	assert.Equal(t, "0.2.1-dev.2.g"+c.run("git", "rev-parse", "HEAD")[:12], c.run("scripts/version"))
}

// Links into the repository lead to GitHub, to the tag of a release. Others stay.
func TestAbsoluteLinks(t *testing.T) {
	c := newCheckout(t, "absolute-links")
	const blob, raw = "https://github.com/hitline/hitline/blob/v0.1.0/", "https://raw.githubusercontent.com/hitline/hitline/v0.1.0/"
	for page, want := range map[string]string{
		"[a\npage](../docs/log.md#part), [here](#part)":                  "[a\npage](" + blob + "docs/log.md#part), [here](#part)",
		"[a site](https://example.org/a)":                                "[a site](https://example.org/a)",
		"[one](../README.md) ![two](./b.png)":                            "[one](" + blob + "README.md) ![two](" + raw + "scripts/b.png)",
		"[one]: ../README.md\n[two]: https://example.org":                "[one]: " + blob + "README.md\n[two]: https://example.org",
		`<a href="b.md"><img src="c.svg"></a><a href="#b">`:              `<a href="` + blob + `scripts/b.md"><img src="` + raw + `scripts/c.svg"></a><a href="#b">`,
		`<source srcset="c.svg"><source srcset="https://example.org/c">`: `<source srcset="` + raw + `scripts/c.svg"><source srcset="https://example.org/c">`,
	} {
		assert.Equal(t, want, c.run("bash", "-c", "scripts/absolute-links scripts v0.1.0 <<'END'\n"+page+"\nEND"))
	}
	c.commit("first")
	link := func() string { return c.run("bash", "-c", "scripts/absolute-links . <<<'[a](README.md)'") }
	assert.Equal(t, "[a](https://github.com/hitline/hitline/blob/main/README.md)", link())
	c.run("git", "tag", "v0.1.0")
	assert.Equal(t, "[a]("+blob+"README.md)", link())
}

func TestReleaseNotes(t *testing.T) {
	c := newCheckout(t, "release-notes", "absolute-links")
	c.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n- What comes.\n\n## [0.2.0] - 2026-12-01\n\n### Fixed\n\n"+
		"- A\n  [page](docs/a.md).\n\n## [0.1.0] - 2026-11-24\n\n- The first.\n- The second:\n\n      a\n      b\n\n[0.1.0]: https://example.org/v0.1.0\n")
	const blob = "https://github.com/hitline/hitline/blob/"
	for version, want := range map[string]string{
		"0.1.0": "- The first.\n- The second:\n\n      a\n      b", "0.3.0-rc.1": "- What comes.",
		"0.2.0":      "### Fixed\n\n- A [page](" + blob + "v0.2.0/docs/a.md).",
		"0.2.0-rc.1": "### Fixed\n\n- A [page](" + blob + "v0.2.0-rc.1/docs/a.md).",
	} {
		assert.Equal(t, want, c.run("scripts/release-notes", version), version)
	}
	for _, version := range []string{"0.3.0", "0.2", "Unreleased", "v0.2.0"} {
		out, code := c.call(nil, "scripts/release-notes", version)
		assert.NotZero(t, code, "a release without notes is a mistake, not an empty page: %s", out)
	}
}

// The short form names once what this machine lacks, and runs without it.
func TestSaysWhatIsNotThere(t *testing.T) {
	c := newCheckout(t, "test", "compile")
	link := func(tools ...string) {
		for _, tool := range tools {
			path, err := exec.LookPath(tool)
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(filepath.Join(c.folder, "bin"), 0o755))
			require.NoError(t, os.Symlink(path, filepath.Join(c.folder, "bin", tool)))
		}
	}
	run := func(step string) (string, int) {
		return c.call([]string{"CI=", "PATH=" + filepath.Join(c.folder, "bin")}, "scripts/test", step)
	}
	link("bash", "dirname", "tr", "sort", "paste")
	out, code := run("tests")
	assert.Equal(t, "scripts/test: there is no grep: install it", out)
	assert.Equal(t, 1, code)
	link("grep", "sed")
	c.write("bin/go", "#!/usr/bin/env bash\n")
	const libraries = "libibverbs.so.1 libnuma.so.1 libcurl.so.4"
	for _, m := range []struct{ step, tool, libraries, lacks string }{
		{"tests", "", libraries, "python rdma redis"},
		{"tests", "", libraries + " libmlx5.so.1", "python redis"},
		{"soak", "redis-server", libraries, "python rdma"},
	} {
		if m.tool != "" {
			c.write("bin/"+m.tool, "#!/usr/bin/env bash\n")
		}
		c.write("bin/ldconfig", "#!/usr/bin/env bash\necho "+m.libraries+"\n")
		out, code = run(m.step)
		assert.Contains(t, out, "Not on this machine: "+m.lacks+". Tests that need them are skipped")
		assert.Zero(t, code, "%s", out)
	}
}

// While packages are compiled it says which, and how many are; it is silent if all were. Here go and its compiler are
// scripts: the second package takes until it has been named.
func TestCompile(t *testing.T) {
	c := newCheckout(t, "compile")
	c.write("bin/go", `#!/usr/bin/env bash
stale=$(cat stale)
case " $* " in
*" -toolexec "*)
	while [ "$1" != -toolexec ]; do shift; done
	TOOLEXEC_IMPORTPATH='' eval "$2 bin/compile -V=full" # the version of the compiler
	TOOLEXEC_IMPORTPATH='example.com/quick' eval "$2 bin/compile"
	TOOLEXEC_IMPORTPATH='example.com/slow [example.com/slow.test]' eval "$2 bin/compile"
	;;
*) echo "$stale" ;;
esac
`)
	c.write("bin/compile", `#!/usr/bin/env bash
[[ $TOOLEXEC_IMPORTPATH = *slow* ]] || exit 0
for _ in {1..3000}; do
	grep -q slow printed && exit
	sleep 0.01
done
exit 1
`)
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	c.write("bin/sleep", "#!/usr/bin/env bash\nexec "+sleep+" 0.01\n") // in place of seconds
	compile := func() (string, int) {
		return c.call([]string{"PATH=" + filepath.Join(c.folder, "bin") + ":" + os.Getenv("PATH")},
			"bash", "-c", "set -o pipefail; scripts/compile ./... | tee printed")
	}
	c.write("stale", "quick\nslow\nmain\n")
	out, code := compile()
	require.Zero(t, code, "%s", out)
	assert.Contains(t, strings.Split(out, "\n"), "compiled 1 of 3 packages, now example.com/slow")
	c.write("stale", "main\n")
	out, code = compile()
	assert.Empty(t, out)
	assert.Zero(t, code)
}
