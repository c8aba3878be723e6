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
			assert.True(t, r.used, "rules of table_test.go: no example has a command that matches %q; delete it", r.command)
		}
	}
}

// pages returns the pages whose commands count, by their paths in the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md", "clients/*/*.md", "bench/testdata/*.md", "deploy/*"} {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, path := range matches {
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

// pageExamples returns the examples of a page. Where they name hitline.yaml, that is the first YAML of the page.
func pageExamples(t *testing.T, page string) []example {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	if strings.HasPrefix(page, "deploy/") {
		text = notComment.ReplaceAll(text, nil)
	}
	examples, yaml := readPage(page, string(text))
	for i := range examples {
		if len(yaml) > 0 && strings.Contains(examples[i].text, "hitline.yaml") {
			examples[i].config = yaml[0]
		}
	}
	return examples
}

// helpExamples returns the examples in the help of a program, or a command, and of all commands below it, one for each
// line. above is the help of the command above it.
func (p *programs) helpExamples(t *testing.T, above string, path ...string) []example {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(p.bin, path[0]), slices.Concat(path[1:], []string{"--help"})...).Output()
	require.NoError(t, err, path)
	help := string(out)
	if help == above { // an argument and not a command
		return nil
	}
	for _, flag := range flagName.FindAllString(help, -1) {
		p.flags[flag] = true
	}
	where := strings.Join(path, " ") + " --help"
	var examples []example
	if _, after, ok := strings.Cut(help, "\nExamples:\n"); ok {
		text, _, _ := strings.Cut(after, "\n\n")
		for _, line := range commandLines(dedent(strings.Split(text, "\n"))) {
			examples = append(examples, example{where: where, text: line})
		}
	}
	name := path[len(path)-1]
	assert.True(t, len(examples) > 0 || withoutExamples[name], "%s shows no example", where)
	if name == "help" {
		return examples // its arguments are the commands again
	}
	for _, command := range p.subcommands(t, path) {
		examples = append(examples, p.helpExamples(t, help, append(slices.Clone(path), command)...)...)
	}
	return examples
}

// subcommands returns the names of the commands below one, as its completion has them.
func (p *programs) subcommands(t *testing.T, path []string) []string {
	t.Helper()
	args := slices.Concat([]string{"__complete"}, path[1:], []string{""})
	out, err := exec.CommandContext(t.Context(), filepath.Join(p.bin, path[0]), args...).Output()
	require.NoError(t, err, path)
	var names []string
	for line := range strings.Lines(string(out)) {
		if name, _, described := strings.Cut(strings.TrimSpace(line), "\t"); described && !strings.HasPrefix(name, "-") {
			names = append(names, name)
		}
	}
	return names
}

var (
	flagName = regexp.MustCompile(`--[a-z][a-z_-]*`)
	flagSpan = regexp.MustCompile(`^--[a-z]`)
)

// checkFlags checks that the flags that pages name by themselves are flags of some command of either program.
func (p *programs) checkFlags(t *testing.T, all []example) {
	t.Helper()
	for _, e := range all {
		if !e.inline || !flagSpan.MatchString(e.text) || isHistory(e.where) {
			continue
		}
		for _, flag := range flagName.FindAllString(e.text, -1) {
			assert.True(t, p.flags[flag] || foreignFlags[flag],
				"%s: no command has the flag %s. Mend the page; if it is another program's, add it to foreignFlags in internal/examples/table_test.go", e.where, flag)
		}
	}
}

// TestFiguresHaveCommands checks that each table and picture of a measurement stands below a command that makes it, or
// has one, in the same section.
func TestFiguresHaveCommands(t *testing.T) {
	for _, page := range []string{"docs/performance.md", "docs/measurements.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		assert.Empty(t, figuresWithoutCommand(page, string(text)), "figures whose section shows no command that makes them")
	}
}

// figuresWithoutCommand returns where sections have figures and no command in front of their end.
func figuresWithoutCommand(page, text string) []string {
	var missing []string
	figure, command := 0, false
	endFigure := func() {
		if figure > 0 && !command {
			missing = append(missing, position(page, figure))
		}
		figure = 0
	}
	for i, line := range strings.Split(text, "\n") {
		command = command || makesFigures.MatchString(line)
		switch {
		case strings.HasPrefix(line, "#"):
			endFigure()
			command = false
		case strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "<picture>"):
			if figure == 0 {
				figure = i + 1
			}
		case line == "":
			endFigure()
		}
	}
	endFigure()
	return missing
}

// makesFigures matches a line with a command that measures, in back quotes or in a block.
var makesFigures = regexp.MustCompile("(?:`[^`]*|^    .*)(?:hitbench [a-z]|go (?:test|run) |make (?:agree|attack|pictures|bench))")

// A plan is what to do with an example.
type plan struct {
	example
	lines   []string // command lines that run, in one script
	lookUp  []string // simple commands that do not: whether they exist
	unknown []string // names of programs that this test does not know
}

var programName = regexp.MustCompile(`\bhit(?:line|bench) [a-z-]`)

// makePlan returns what to do with an example, or nil if it has no command.
func makePlan(e example) *plan {
	if e.inline && !spanNames.MatchString(e.text) {
		return nil
	}
	p := &plan{example: e}
	known := false
	lines := commandLines(e.text)
	if e.inline {
		lines = []string{e.text}
	}
	for _, line := range lines {
		commands := simpleCommands(line)
		run := !isHistory(e.where)
		for _, c := range commands {
			name, _, _ := strings.Cut(c, " ")
			_, isTool := tools[name]
			reason := reasonOf(c)
			switch {
			case notCommand.MatchString(c):
				return nil
			case reason != "" || isReference(e, c):
				run = false
			case name != "hitline" && name != "hitbench" && !isTool:
				p.unknown = append(p.unknown, name)
				continue
			}
			known = known || !e.inline || c != name
		}
		if run {
			p.lines = append(p.lines, line)
		} else {
			p.lookUp = append(p.lookUp, commands...)
		}
	}
	switch {
	case known && (!e.inline || len(p.unknown) == 0):
		return p
	case !e.inline && programName.MatchString(e.text):
		return p // and fails
	}
	return nil
}

// isHistory says whether a page tells of what was, so that its commands need only exist.
func isHistory(where string) bool {
	return strings.HasPrefix(where, "CHANGELOG.md") || strings.HasPrefix(where, "docs/decisions/")
}

// isReference says whether a code span only names a command.
func isReference(e example, command string) bool {
	return e.inline && !strings.ContainsAny(command, "-/.") && len(strings.Fields(command)) <= 3 && command == strings.ToLower(command)
}

// reasonOf returns why a simple command is not run, or "".
func reasonOf(command string) string {
	for _, r := range rules {
		if r.reason != "" && r.command.MatchString(command) {
			r.used = true
			return r.reason
		}
	}
	return ""
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
	startsServer := slices.ContainsFunc(plan.lines, func(line string) bool { return servers.MatchString(line) })
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

// servers matches a command that serves.
var servers = regexp.MustCompile(`\bhitline serve\b`)

// edit returns a command line with what the rules replace and append, and has a server in the foreground run in the
// background.
func edit(line string) string {
	s := scan(line)
	for _, part := range slices.Backward(s.segments) {
		command, end := simpleCommand(s.code, part)
		edited := line[end-len(command) : end]
		name := strings.TrimPrefix(command, "bin/")
		for _, r := range rules {
			if r.command.MatchString(name) {
				r.used = true
				edited = strings.NewReplacer(r.replace...).Replace(edited)
				if r.flags != "" {
					edited += " " + r.flags
				}
			}
		}
		inBackground := strings.HasPrefix(strings.TrimSpace(s.code[end:]), "&")
		if strings.HasPrefix(name, "hitline serve") && !strings.Contains(name, "--check") && !inBackground {
			edited = "start_server " + edited
		}
		line = line[:end-len(command)] + edited + line[end:]
	}
	return line
}
