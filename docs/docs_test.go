// Package docs tests what pages promise: that links lead somewhere, and that command lines are accepted.
package docs

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
)

const (
	root   = ".."
	onMain = "https://github.com/hitline/hitline/blob/main/"
)

// repository returns the files and folders of the repository, without what is built.
func repository(t *testing.T) map[string]bool {
	t.Helper()
	files := map[string]bool{}
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		hidden := strings.HasPrefix(base, ".") && base != "." && base != ".github" && base != ".ci"
		if err == nil && entry.IsDir() && (hidden || name == "bin" || name == "dist" || base == "__pycache__") {
			return fs.SkipDir
		}
		files[name] = true
		return err
	}))
	return files
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

var (
	fence      = regexp.MustCompile("(?ms)^```.*?^```")
	codeSpan   = regexp.MustCompile("`[^`]*`")
	inlineLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	reference  = regexp.MustCompile(`(?m)^\[[^\]]+\]: (\S+)$`)
	htmlLink   = regexp.MustCompile(`\b(?:src|srcset|href)="([^"]*)"`)
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	htmlAnchor = regexp.MustCompile(`\bid="([^"]*)"`)
)

// linksOf returns the targets of the links of a page.
func linksOf(page string) (links []string) {
	page = codeSpan.ReplaceAllString(fence.ReplaceAllString(page, ""), "")
	for _, pattern := range []*regexp.Regexp{inlineLink, reference, htmlLink} {
		for _, m := range pattern.FindAllStringSubmatch(page, -1) {
			links = append(links, m[1])
		}
	}
	return links
}

// anchorsOf returns the anchors that GitHub gives to the headings of a page.
func anchorsOf(page string) map[string]bool {
	anchors := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := inlineLink.ReplaceAllString(m[1], "]")
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(text))
		name := anchor
		for i := 1; anchors[name]; i++ {
			name = fmt.Sprintf("%s-%d", anchor, i)
		}
		anchors[name] = true
	}
	for _, m := range htmlAnchor.FindAllStringSubmatch(page, -1) {
		anchors[m[1]] = true
	}
	return anchors
}

// brokenLink says what is wrong with a link of a page, or returns "".
func brokenLink(t *testing.T, page, link string, files map[string]bool) string {
	t.Helper()
	inside, absolute := strings.CutPrefix(link, onMain)
	if !absolute && regexp.MustCompile(`^[a-z]+:`).MatchString(link) {
		return ""
	}
	name, fragment, _ := strings.Cut(inside, "#")
	target := page
	switch {
	case absolute:
		target = path.Clean(name)
	case name != "":
		target = path.Join(path.Dir(page), name)
	}
	if !files[target] {
		return fmt.Sprintf("%s: the link %s leads to %s, which does not exist", page, link, target)
	}
	if fragment != "" && (path.Ext(target) != ".md" || !anchorsOf(readPage(t, target))[fragment]) {
		return fmt.Sprintf("%s: the link %s leads to %s, which has no such heading", page, link, target)
	}
	return ""
}

// Every link that leads into the repository leads to a file, and to a heading if it names one. So do those that
// programs, alerts and dashboards print.
func TestLinks(t *testing.T) {
	files := repository(t)
	pages, absolute := 0, regexp.MustCompile(regexp.QuoteMeta(onMain)+`[\w./-]*[\w/](?:#[\w-]+)?`)
	for file := range files {
		var links []string
		switch path.Ext(file) {
		case ".md":
			links = linksOf(readPage(t, file))
			pages++
		case ".go", ".py", ".json", ".yaml", ".tpl", ".toml":
			links = absolute.FindAllString(readPage(t, file), -1)
		}
		for _, link := range links {
			assert.Empty(t, brokenLink(t, file, link, files))
		}
	}
	assert.Greater(t, pages, 10)
}

// blocks returns the indented blocks of a page, without what their commands print.
func blocks(page string) (found []string) {
	for _, m := range regexp.MustCompile(`(?m)^    .*\n(?:(?:    .*)?\n)*`).FindAllString(page, -1) {
		var typed []string
		prompted := strings.HasPrefix(m, "    $ ")
		for line := range strings.Lines(m) {
			text, command := strings.CutPrefix(strings.TrimPrefix(line, "    "), "$ ")
			if command || !prompted {
				typed = append(typed, text)
			}
		}
		found = append(found, strings.ReplaceAll(strings.Join(typed, ""), "\\\n", " "))
	}
	return found
}

// command matches a call of one of the programs, up to what ends it in a shell.
var command = regexp.MustCompile(`(?m)(?:^|[|;&(] ?|\buntil )\s*(?:bin/)?((?:hitline|hitbench)\b(?: [^|;&<>#)\n]*)?)`)

// commandsOf returns the calls of the programs that a page shows, in blocks and in back quotes.
func commandsOf(page string) (commands []string) {
	for _, block := range blocks(page) {
		for _, m := range command.FindAllStringSubmatch(block, -1) {
			commands = append(commands, strings.TrimSuffix(strings.TrimSpace(m[1]), " 2"))
		}
	}
	for _, m := range regexp.MustCompile("`((?:hitline|hitbench) [^`]+)`").FindAllStringSubmatch(page, -1) {
		commands = append(commands, strings.Join(strings.Fields(m[1]), " "))
	}
	return commands
}

// buildPrograms builds hitline and hitbench, and returns their folder.
func buildPrograms(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bin")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin+"/", "./cmd/...")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

func TestCommands(t *testing.T) {
	bin := buildPrograms(t)
	t.Run("accepted", func(t *testing.T) { testAccepted(t, bin) })
	t.Run("README", func(t *testing.T) { testReadme(t, bin) })
	t.Run("Go program of README", testReadmeProgram)
}

// testAccepted checks that every command and flag exists that pages, the form for bugs and the help of commands show.
func testAccepted(t *testing.T, bin string) {
	help := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, args[0]), append(args[1:], "--help")...).CombinedOutput()
		return string(out), err
	}
	commands := map[string][]string{}
	for file := range repository(t) {
		if path.Ext(file) == ".md" {
			commands[file] = commandsOf(readPage(t, file))
		}
	}
	require.NotEmpty(t, commands["README.md"])
	require.NotEmpty(t, commands["docs/tutorial.md"])
	for _, m := range regexp.MustCompile(`label: (hitline .*)`).FindAllStringSubmatch(readPage(t, ".github/ISSUE_TEMPLATE/bug.yml"), -1) {
		commands["bug.yml"] = append(commands["bug.yml"], m[1])
	}
	require.Len(t, commands["bug.yml"], 2)
	for _, program := range []string{"hitline", "hitbench"} {
		list, err := help(program)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^  ([a-z-]+) {2,}`).FindAllStringSubmatch(list, -1) {
			text, err := help(program, m[1])
			require.NoError(t, err)
			_, examples, _ := strings.Cut(text, "\nExamples:\n")
			examples, _, _ = strings.Cut(examples, "\n\n")
			commands[program+" "+m[1]+" --help"] = commandsOf("  " + strings.ReplaceAll(examples, "\n", "\n  ") + "\n")
		}
	}
	require.NotEmpty(t, commands["hitline lookup --help"])
	for where, list := range commands {
		for _, line := range list {
			args := strings.Fields(strings.ReplaceAll(line, "'", ""))
			text, err := help(args...)
			assert.NoError(t, err, "%s: %s: %s", where, line, text)
			if len(args) > 1 && !strings.HasPrefix(args[1], "-") {
				assert.Contains(t, text, "\n  "+args[0]+" "+args[1], "%s: there is no command %s %s", where, args[0], args[1])
			}
		}
	}
}

// testReadme runs what README shows under "Try it", and the commands that need no engine.
func testReadme(t *testing.T, bin string) {
	if runtime.GOOS != "linux" {
		t.Skip("hitbench measures on Linux only")
	}
	yaml := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(readPage(t, "README.md"))
	require.NotNil(t, yaml)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "router.yaml"), []byte(yaml[1]), 0o600))
	try, err := filepath.Abs("../scripts/try-readme")
	require.NoError(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := "tcp://" + free.Addr().String()
	require.NoError(t, free.Close())
	run := exec.CommandContext(t.Context(), "bash", "-ec", try+` "$1"
"$1/hitline" init
"$1/hitline" serve --config hitline.yaml --check
"$1/hitline" serve --config router.yaml --check
"$1/hitbench" run --start -d 200ms
`, "bash", bin)
	run.WaitDelay = 10 * time.Second // for a server that was left
	run.Dir, run.Env = dir, append(os.Environ(), "HITLINE_LISTEN="+address, "HITLINE_ADDRESS="+address)
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// testReadmeProgram runs the Go program that README shows.
func testReadmeProgram(t *testing.T) {
	program := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(readPage(t, "README.md"))
	require.NotNil(t, program)
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program[1]), 0o600))
	run := exec.CommandContext(t.Context(), "go", "run", "-buildvcs=false", file)
	run.Dir = root
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "64\n", string(out))
}

// The page of the releases has a row for those with equal answers. It is the one page that names all of them.
func TestReleases(t *testing.T) {
	var rows []string
	for _, release := range coordinator.Releases() {
		fitting := (&coordinator.Pool{VLLM: release}).FittingReleases()
		if len(rows) == 0 || rows[len(rows)-1] != fitting {
			rows = append(rows, fitting)
		}
	}
	_, table, _ := strings.Cut(readPage(t, "docs/releases.md"), "| vLLM | change |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var named []string
	for row := range strings.SplitSeq(table, "\n") {
		named = append(named, strings.TrimSpace(strings.Split(row, "|")[1]))
	}
	assert.Equal(t, rows, named)
}
