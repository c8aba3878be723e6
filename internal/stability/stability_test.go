package stability

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// Each package that others can import is in the table, and nothing else is.
func TestPageNamesAllPackages(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/stability.md"))
	require.NoError(t, err)
	var listed, want []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (stable|not stable) \\|").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, m[1])
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Name}} {{.ImportPath}} {{len .GoFiles}}", "./...")
	list.Dir, list.Stderr = root, os.Stderr
	text, err := list.Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		path := strings.TrimPrefix(fields[1], "github.com/hitline/hitline/")
		top, _, _ := strings.Cut(path, "/")
		internal := slices.Contains(strings.Split(path, "/"), "internal")
		if fields[0] == "main" || internal || fields[2] == "0" || slices.Contains([]string{"bench", "clients", "deploy", "scripts"}, top) {
			continue // bench is one row
		}
		want = append(want, path)
	}
	assert.ElementsMatch(t, append(want, "bench"), listed, "docs/stability.md has one row a package")
}

// The module can be tagged as it is.
func TestModuleIsReady(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	assert.NotRegexp(t, `(?m)^(replace|exclude|retract|toolchain)\b`, string(mod), "go install of a module refuses replace and exclude")
	license, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	require.NoError(t, err)
	assert.Contains(t, string(license), "Apache License")
}

var notReleased = regexp.MustCompile(`(?i)nothing is\s+released\s+yet|will be the\s+first`)

// The pages of a release do not say that there is none. Before the first, both do.
func TestPagesOfARelease(t *testing.T) {
	says := func(page string) string {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		return notReleased.FindString(string(text))
	}
	readme, install := says("README.md"), says("docs/install.md")
	assert.Equal(t, readme == "", install == "", "README: %q, docs/install.md: %q", readme, install)
	if err := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/version"), "--is-release").Run(); err == nil {
		assert.Empty(t, readme+install)
	}
}

// repository is a small module with a copy of scripts/check-api.
type repository struct {
	t   *testing.T
	dir string
}

func newRepository(t *testing.T) repository {
	r := repository{t, t.TempDir()}
	script, err := os.ReadFile(filepath.Join(root, "scripts/check-api"))
	require.NoError(t, err)
	r.write("scripts/check-api", string(script))
	require.NoError(t, os.Chmod(filepath.Join(r.dir, "scripts/check-api"), 0o755))
	r.write("go.mod", "module example.com/m\n\ngo 1.26\n")
	r.write("docs/stability.md", "| `a` | stable | |\n| `b` | not stable | |\n")
	r.write("a/a.go", "package a\n\nfunc F() {}\n")
	r.write("b/b.go", "package b\n\nfunc F() {}\n")
	r.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n## [0.0.1]\n\n- **Breaking**: long ago\n")
	r.git("init", "-q")
	r.commit()
	return r
}

func (r repository) write(name, text string) {
	path := filepath.Join(r.dir, name)
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(r.t, os.WriteFile(path, []byte(text), 0o600))
}

func (r repository) git(args ...string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", append([]string{"-C", r.dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(r.t, err, "%s", out)
}

func (r repository) commit() {
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", "change")
}

// check runs scripts/check-api and returns its exit code and what it printed.
func (r repository) check() (code int, text string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), filepath.Join(r.dir, "scripts/check-api"))
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		require.ErrorContains(r.t, err, "exit status")
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func (r repository) want(code int, text string) {
	r.t.Helper()
	got, out := r.check()
	assert.Equal(r.t, code, got, out)
	assert.Contains(r.t, out, text)
}

func TestCheckAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("builds apidiff")
	}
	r := newRepository(t)
	r.want(0, "no release is tagged before this commit")
	r.git("tag", "v0.1.0")
	r.want(0, "no release is tagged before this commit")
	r.commit()
	if code, out := r.check(); code == 2 && os.Getenv("CI") != "true" && strings.Contains(out, "cannot build apidiff") {
		t.Skip(out)
	}
	r.want(0, "1 stable packages are compatible with v0.1.0")

	r.write("a/a.go", "package a\n\nfunc F() {}\n\nfunc G() {}\n") // additions are compatible
	r.write("b/b.go", "package b\n")                               // b promises nothing
	r.commit()
	r.want(0, "compatible with v0.1.0")

	r.write("a/a.go", "package a\n\nfunc F(int) {}\n")
	r.commit()
	r.want(1, "- F: changed from func() to func(int)")
	r.git("tag", "v0.1.1")
	r.want(1, "v0.1.1 may not break what v0.1.0 promised; undo the changes, or tag a higher minor version")
	r.git("tag", "-d", "v0.1.1")
	r.git("tag", "v0.2.0-rc.1")
	r.want(0, "v0.2.0-rc.1 may break what v0.1.0 promised")
	r.git("tag", "-d", "v0.2.0-rc.1")
	r.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n- **Breaking**: F takes an int\n\n## [0.0.1]\n")
	r.want(0, "the next release needs a higher minor version than v0.1.0")
	r.commit()
	r.git("tag", "v1.0.0")
	r.want(0, "v1.0.0 may break what v0.1.0 promised")

	r.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n")
	r.write("docs/stability.md", "| `b` | stable | |\n") // a is no longer promised
	r.commit()
	r.want(1, "a:\n  no longer stable")
	r.git("tag", "v1.1.0")
	r.want(1, "tag a higher major version")
	r.git("tag", "-d", "v1.1.0")
	r.write("docs/stability.md", "| `a` | stable | |\n")
	require.NoError(t, os.RemoveAll(filepath.Join(r.dir, "a")))
	r.want(1, "a:\n  package removed")
}

// A tag is all that `go install` needs for a program that knows its version.
func TestGoInstall(t *testing.T) {
	if os.Getenv("HITLINE_TEST_GO_INSTALL") == "" {
		t.Skip("builds a program with all that it needs, from a module cache of its own: a minute; make check-api runs it")
	}
	absolute, err := filepath.Abs(root)
	require.NoError(t, err)
	if out, err := exec.CommandContext(t.Context(), "git", "-C", absolute, "rev-parse", "HEAD").CombinedOutput(); err != nil {
		t.Fatalf("no git repository here: %s", out)
	}
	dir := t.TempDir()
	clone, bin := filepath.Join(dir, "hitline"), filepath.Join(dir, "bin")
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		downloaded, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
		require.NoError(t, err)
		cache, proxy, _ := strings.Cut(strings.TrimSpace(string(downloaded)), "\n")
		// Not the user's module cache: it would keep this v0.1.0 for ever.
		cmd.Env = append(os.Environ(), "GOMODCACHE="+filepath.Join(dir, "mod"), "GOBIN="+bin, "GOFLAGS=-modcacherw", "GOWORK=off",
			"GOPROXY=file://"+cache+"/cache/download,"+proxy, "GOPRIVATE=github.com/hitline/hitline", "GOSUMDB=off", "CGO_ENABLED=0",
			"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=url."+clone+".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/hitline/hitline",
			"GIT_CONFIG_KEY_1=safe.directory", "GIT_CONFIG_VALUE_1=*")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %v: %s", name, args, out)
		return string(out)
	}
	run("git", "clone", "-q", "--no-tags", absolute, clone)
	run("git", "-C", clone, "tag", "v0.1.0")
	run("go", "install", "github.com/hitline/hitline/cmd/hitline@v0.1.0")
	assert.Contains(t, run(filepath.Join(bin, "hitline"), "version"), "hitline v0.1.0\ngo go1.")
}
