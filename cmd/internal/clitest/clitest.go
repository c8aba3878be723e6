// Package clitest has what the tests of hitline and hitbench ask of every command.
package clitest

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/cmd/internal/cli"
)

// Run runs a command line.
type Run func(args ...string) (code int, stdout, stderr string)

// CheckHelp checks that each command has a help of 40 lines and 80 columns at most, with an example and its flags. Those of
// connections have a topic of their own.
func CheckHelp(t *testing.T, root *cobra.Command, run Run) {
	_, topic, _ := run("help", "connection")
	each(t, root, func(t *testing.T, cmd *cobra.Command, args []string) {
		assert.NotEmpty(t, cmd.Short)
		assert.Greater(t, len(cmd.Long), 40)
		code, help, stderr := run(append(args, "--help")...)
		assert.Equal(t, cli.ExitDone, code)
		assert.Empty(t, stderr)
		assert.Contains(t, help, cmd.Long)
		if cmd != root || cmd.HasExample() {
			assert.Contains(t, cmd.Example, cmd.CommandPath())
			assert.Contains(t, help, "\nExamples:\n"+cmd.Example+"\n")
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			assert.Contains(t, help+topic, "--"+f.Name, "its help")
			assert.NotEmpty(t, f.Usage, f.Name)
			assert.NotContains(t, f.Usage, "\n", "help breaks the lines of --%s", f.Name)
		})
		assert.LessOrEqual(t, strings.Count(help, "\n"), 40, "a screen")
		for line := range strings.Lines(help) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
		}
		_, again, _ := run(append([]string{"help"}, args...)...)
		assert.Equal(t, help, again)
	})
}

// CheckJSONFailures checks that with --json a wrong command line is one line on standard output, wherever it is wrong.
func CheckJSONFailures(t *testing.T, root *cobra.Command, run Run) {
	each(t, root, func(t *testing.T, cmd *cobra.Command, args []string) {
		if cmd.Flags().Lookup("json") == nil {
			return
		}
		for _, wrong := range [][]string{{"--bogus", "--json"}, {"--json", "--bogus"}, {"x", "y", "--json"}, {"--json", "x", "y"}} {
			code, stdout, stderr := run(append(args, wrong...)...)
			assert.Equal(t, cli.ExitUsage, code, wrong)
			assert.Regexp(t, `^\{"error":".*","exit":2\}\n$`, stdout, wrong)
			assert.Regexp(t, `^`+root.Name()+`: .*\nhint: `+cmd.CommandPath()+` --help\n$`, stderr, wrong)
		}
	})
}

// each calls check with each command that help lists, and the root, and with its command line without the program's name.
func each(t *testing.T, root *cobra.Command, check func(t *testing.T, cmd *cobra.Command, args []string)) {
	for _, cmd := range append(root.Commands(), root) {
		if cmd == root || cmd.IsAvailableCommand() && cmd.Name() != "help" {
			t.Run(cmd.Name(), func(t *testing.T) {
				args := strings.Fields(cmd.CommandPath())[1:]
				check(t, cmd, args[:len(args):len(args)])
			})
		}
	}
}
