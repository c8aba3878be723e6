package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/client"
)

// commands returns the commands that help lists, and the root.
func commands() []*cobra.Command {
	root := new(app).rootCommand()
	all := []*cobra.Command{root}
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			all = append(all, cmd)
		}
	}
	return all
}

// arguments returns the command line of a command, without the program's name.
func arguments(cmd *cobra.Command) []string { return strings.Fields(cmd.CommandPath())[1:] }

// Each command and each flag has a help of 40 lines and 80 columns at most, and an example. Flags of connections have
// a topic of their own.
func TestHelp(t *testing.T) {
	connection := runWith(t.Context(), &fakeServer{}, "help", "connection").stdout
	for _, cmd := range commands() {
		t.Run(cmd.Name(), func(t *testing.T) {
			assert.NotEmpty(t, cmd.Short)
			assert.Greater(t, len(cmd.Long), 40)
			assert.Contains(t, cmd.Example, "hitbench "+strings.Join(arguments(cmd), ""))
			r := runWith(t.Context(), &fakeServer{}, append(arguments(cmd), "--help")...)
			assert.Equal(t, exitDone, r.code)
			assert.Empty(t, r.stderr)
			assert.Contains(t, r.stdout, cmd.Long)
			assert.Contains(t, r.stdout, "\nExamples:\n"+cmd.Example+"\n")
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				assert.Contains(t, r.stdout+connection, "--"+f.Name, "its help")
				assert.NotEmpty(t, f.Usage, f.Name)
				assert.NotContains(t, f.Usage, "\n", "help breaks the lines of --%s", f.Name)
			})
			assert.LessOrEqual(t, strings.Count(r.stdout, "\n"), 40)
			for line := range strings.Lines(r.stdout) {
				assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
			}
			assert.Equal(t, r, runWith(t.Context(), &fakeServer{}, append([]string{"help"}, arguments(cmd)...)...))
		})
	}
}

// With --json a failure is one line on standard output, whatever has failed.
func TestJSONFailure(t *testing.T) {
	for _, cmd := range commands() {
		if cmd.Flags().Lookup("json") == nil {
			continue
		}
		t.Run(cmd.Name(), func(t *testing.T) {
			for _, wrong := range []string{"--bogus", "now"} {
				for _, args := range [][]string{{wrong, "--json"}, {"--json", wrong}} {
					r := runWith(t.Context(), &fakeServer{}, append(arguments(cmd), args...)...)
					assert.Equal(t, exitUsage, r.code, args)
					assert.Regexp(t, `^\{"error":".*(bogus|now).*","exit":2\}\n$`, r.stdout, args)
				}
			}
		})
	}
	r := runWith(t.Context(), &fakeServer{}, "replay", "--trace", "/no/such", "--json")
	assert.Regexp(t, `^\{"error":"bad trace: .*","exit":2\}\n$`, r.stdout)
	r = runWith(t.Context(), &fakeServer{}, "replay", "--trace", traceFile(t, small), "--connect", "tcp://127.0.0.1:0", "--json")
	assert.Regexp(t, `^\{"error":"--connect: .*port 0.*","exit":2\}\n$`, r.stdout)
}

// refused is what no server at an address makes of a connection.
func refused(_ context.Context, addr string) error {
	return fmt.Errorf("%w: %s: connection refused", client.ErrConnect, addr)
}

func TestAddressOfTheEnvironment(t *testing.T) {
	t.Setenv("HITLINE_ADDRESS", "tcp://127.0.0.1:1")
	for _, line := range []string{"replay --trace " + excerpt, "run"} {
		r := runWith(t.Context(), &fakeServer{refuse: refused}, strings.Fields(line)...)
		assert.Equal(t, exitLost, r.code, line)
		assert.Regexp(t, `127\.0\.0\.1:1\b.*connection refused`, r.stderr, line)
	}
	t.Setenv("HITLINE_ADDRESS", "127.0.0.1:0")
	for _, line := range []string{"replay --trace " + excerpt, "run"} {
		r := runWith(t.Context(), &fakeServer{refuse: refused}, strings.Fields(line)...)
		assert.Equal(t, exitUsage, r.code, line)
		assert.Contains(t, r.stderr, `hitbench: HITLINE_ADDRESS: "127.0.0.1:0" has port 0`, line)
	}
	r := runWith(t.Context(), &fakeServer{refuse: refused}, "run", "--connect", "tcp://127.0.0.1:2")
	require.Contains(t, r.stderr, "127.0.0.1:2 (connection refused)", "the flag counts first")
}

// Shells complete what a flag or an argument may be.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"compare --only ": "raw hitline hitline-zmtp python-zmq-bare python-zmq redis-smismember redis-exists",
	} {
		r := runWith(t.Context(), &fakeServer{}, strings.Split("__complete "+line, " ")...)
		assert.Equal(t, strings.Fields(want+" :4"), strings.Fields(r.stdout), line)
	}
}
