package examples

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExamples runs every example: of the help of all commands, and of the pages.
func TestExamples(t *testing.T) {
	p := build(t)
	var all []example
	for _, program := range []string{"hitline", "hitbench"} {
		all = append(all, p.helpExamples(t, "", program)...)
	}
	for _, page := range pages(t) {
		all = append(all, pageExamples(t, page)...)
	}
	p.checkFlags(t, all)
	for page, target := range scripted {
		lookUpMake(t, page, []string{target})
	}
	ok := t.Run("run", func(t *testing.T) {
		for _, e := range all {
			if plan := makePlan(e); plan != nil {
				t.Run(strings.ReplaceAll(e.where, "/", "."), func(t *testing.T) {
					t.Parallel()
					p.try(t, plan)
				})
			}
		}
	})
	if testing.Short() {
		return
	}
	if whole := flag.Lookup("test.run").Value.String() == ""; whole && ok {
		for _, r := range rules {
			assert.True(t, r.used.Load(), "rules of table_test.go: no example has a command that matches %q; delete it", r.command)
		}
	}
}

// pages returns the pages whose commands count, by their paths in the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md", "clients/*/*.md", "bench/testdata/*.md", "deploy/*", "deploy/helm/*/*.md"} {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, path := range matches {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				continue
			}
			page, err := filepath.Rel(root, path)
			require.NoError(t, err)
			found = append(found, filepath.ToSlash(page))
		}
	}
	require.Contains(t, found, "README.md")
	return found
}

// notComment matches the lines of a file that are no comments, and the beginnings of those that are.
var notComment = regexp.MustCompile(`(?m)^(?:[^#\n].*|#!.*|# ?)`)

// chartValues matches YAML that has a configuration under a key, as values of the Helm chart do.
var chartValues = regexp.MustCompile(`^config:`)

// pageExamples returns the examples of a page. Where they name hitline.yaml, that is the first YAML of the page that is
// one.
func pageExamples(t *testing.T, page string) []example {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	if strings.HasPrefix(page, "deploy/") && !strings.HasSuffix(page, ".md") {
		text = notComment.ReplaceAll(text, nil)
	}
	examples, yaml := readPage(page, string(text))
	yaml = slices.DeleteFunc(yaml, chartValues.MatchString)
	for i := range examples {
		if len(yaml) > 0 && strings.Contains(examples[i].text, "hitline.yaml") {
			examples[i].config = yaml[0]
		}
	}
	return examples
}

// try does what a plan says.
func (p *programs) try(t *testing.T, plan *plan) {
	require.Empty(t, plan.unknown, "%s: this test does not know these programs. Add them to tools in "+
		"internal/examples/table_test.go if they are everywhere and change nothing outside of their folder; "+
		"otherwise add a rule with a reason:\n%s", plan.where, plan.text)
	for _, command := range plan.lookUp {
		p.lookUp(t, plan.where, command)
	}
	if len(plan.lines) == 0 || !plan.runnable(t, p) {
		return
	}
	startsServer := slices.ContainsFunc(plan.lines, servers.MatchString)
	s := newSandbox(t, p, plan.example, startsServer)
	var script strings.Builder
	for _, line := range plan.lines {
		script.WriteString(s.addresses.Replace(edit(line)) + "\n")
	}
	output, err := s.run(script.String())
	require.NoError(t, err, "%s does not work:\n%s\nIt was run as:\n%s\nand printed:\n%s\nMend the page or the program, or "+
		"say in internal/examples/table_test.go how it is run here.", plan.where, plan.text, &script, output)
}

// runnable says whether the lines of a plan run here. Otherwise their flags are parsed.
func (plan *plan) runnable(t *testing.T, p *programs) bool {
	t.Helper()
	why := ""
	for _, command := range commandsOf(plan.lines) {
		name, _, _ := strings.Cut(command, " ")
		_, missing := exec.LookPath(name)
		switch {
		case name == "hitbench" && runtime.GOOS != "linux":
			why = "hitbench measures on Linux only"
		case tools[name] && missing != nil:
			why = "it takes " + name
			require.NotEqual(t, "true", os.Getenv("CI"), "%s: with CI=true nothing is skipped: %s", plan.where, why)
		}
	}
	if testing.Short() {
		why = "-short"
	}
	if why == "" {
		return true
	}
	for _, command := range commandsOf(plan.lines) {
		if !strings.ContainsAny(command, "N…") { // a number that the reader gives
			p.lookUp(t, plan.where, command)
		}
	}
	t.Log("only looked up: " + why)
	return false
}

func commandsOf(lines []string) (commands []string) {
	for _, line := range lines {
		commands = append(commands, simpleCommands(line)...)
	}
	return commands
}
