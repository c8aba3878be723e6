package examples

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
