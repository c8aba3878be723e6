package scripts

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

// promised returns the Go packages that CONTRIBUTING.md promises, as scripts/check-api reads them.
func promised(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../CONTRIBUTING.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| Go packages ([^|]*) \|`).FindSubmatch(page)
	require.NotNil(t, row, "CONTRIBUTING.md has no row of Go packages")
	return regexp.MustCompile(`[a-z/]+`).FindAllString(string(row[1]), -1)
}

// Each promised package is there, and each other that can be imported says so: "No promise".
func TestOtherPackagesPromiseNothing(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Name}}\t{{.ImportPath}}\t{{.Dir}}\t{{len .GoFiles}}", "../...").Output()
	require.NoError(t, err)
	const module, sentence = "github.com/hitline/hitline/", "No promise: it is internal to this module, and its API may change in any release."
	stable, found := promised(t), 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		path := strings.TrimPrefix(fields[1], module)
		if fields[0] == "main" || fields[3] == "0" || slices.Contains(strings.Split(path, "/"), "internal") {
			continue // nobody can import it
		}
		if slices.Contains(stable, path) {
			found++
		}
		files, err := filepath.Glob(filepath.Join(fields[2], "*.go"))
		require.NoError(t, err)
		says := slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			return strings.Contains(strings.ReplaceAll(string(text), "\n// ", " "), sentence)
		})
		assert.Equal(t, !slices.Contains(stable, path), says, "%s: either promise it in CONTRIBUTING.md, or say in its doc.go: %s", path, sentence)
	}
	assert.Len(t, stable, found, "CONTRIBUTING.md promises packages that are not there")
}

// What was promised may change with a higher version alone, or if the changelog announces it.
func TestCheckAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("builds apidiff")
	}
	c := newCheckout(t, "check-api", "tool")
	c.write("go.mod", "module example.com/m\n\ngo 1.26\n")
	c.write("CONTRIBUTING.md", "| Go packages `a` | others |\n")
	c.write("CHANGELOG.md", "# Changelog\n")
	c.write("a/a.go", "package a\n\nfunc F() {}\n")
	c.write("b/b.go", "package b\n\nfunc F() {}\n")
	c.commit("first")
	c.run("git", "tag", "v0.1.0")
	check := func(code int, text string) {
		t.Helper()
		out, got := c.call([]string{"GOFLAGS=", "GOWORK=off"}, "scripts/check-api")
		assert.Equal(t, code, got, "%s", out)
		assert.Contains(t, out, text)
	}
	check(0, "no release is tagged before this commit")

	c.write("a/a.go", "package a\n\nfunc F() {}\n\nfunc G() {}\n") // additions are compatible
	c.write("b/b.go", "package b\n")                               // b promises nothing
	c.commit("compatible")
	check(0, "1 stable packages are compatible with v0.1.0")

	c.write("a/a.go", "package a\n\nfunc F(int) {}\n")
	c.commit("incompatible")
	check(1, "- F: changed from func() to func(int)")
	c.run("git", "tag", "v0.1.1")
	check(1, "v0.1.1 may not break what v0.1.0 promised")
	c.run("git", "tag", "-d", "v0.1.1")
	c.run("git", "tag", "v0.2.0-rc.1")
	check(0, "incompatible changes since v0.1.0")
	c.run("git", "tag", "-d", "v0.2.0-rc.1")
	c.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n- **Breaking**: F takes an int\n\n## [0.0.1]\n")
	check(0, "CHANGELOG.md tells of them")

	c.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n## [0.0.1]\n\n- **Breaking**: long ago\n")
	c.write("CONTRIBUTING.md", "| Go packages `b` | others |\n")
	check(1, "a:\n  no longer stable")
}

// A module that go install fetches would lack symbolic links.
func TestNoSymbolicLinks(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--stage")
	list.Dir = ".."
	files, err := list.Output()
	if err != nil {
		t.Skip("this is no git repository")
	}
	assert.NotRegexp(t, `(?m)^120000 `, string(files))
}

// A tag is all that `go install` needs for a program that knows its version.
func TestGoInstall(t *testing.T) {
	if os.Getenv("HITLINE_TEST_GO_INSTALL") == "" {
		t.Skip("builds a program with all that it needs, from a module cache of its own: a minute; make check-api runs it")
	}
	absolute, err := filepath.Abs("..")
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
