package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/coordinator"
)

func TestHelp(t *testing.T) {
	root := newRootCmd()
	for _, cmd := range append(root.Commands(), root) {
		if !cmd.Runnable() || cmd.Name() == "help" { // which is cobra's
			continue
		}
		t.Run(cmd.Name(), func(t *testing.T) {
			assert.NotEmpty(t, cmd.Short)
			assert.Greater(t, len(cmd.Long), 40)
			assert.Equal(t, cmd != root, strings.Contains(cmd.Example, "hitline "+cmd.Name()))
			cmd.Flags().VisitAll(func(f *pflag.Flag) { assert.NotEmpty(t, f.Usage, f.Name) })
			assert.Equal(t, takesJSON(cmd), cmd.Flags().Lookup("json") != nil)

			var args []string
			if cmd != root {
				args = []string{cmd.Name()}
			}
			viaFlag := hitline(t, "", append(args, "--help")...)
			assert.Equal(t, exitDone, viaFlag.code)
			assert.Empty(t, viaFlag.stderr)
			assert.Contains(t, viaFlag.stdout, cmd.Long)
			assert.Contains(t, viaFlag.stdout, cmd.Example)
			assert.LessOrEqual(t, strings.Count(viaFlag.stdout, "\n"), 40, "a screen")
			for line := range strings.Lines(viaFlag.stdout) {
				assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
			}
			assert.Equal(t, viaFlag, hitline(t, "", append([]string{"help"}, args...)...))
		})
	}
}

// The commands are in groups, and so are the flags that many commands have.
func TestHelpGroups(t *testing.T) {
	lines := strings.Split(hitline(t, "", "--help").stdout, "\n")
	groups, title := map[string][]string{}, ""
	for _, line := range lines {
		if name, isTitle := strings.CutSuffix(line, ":"); isTitle {
			title = name
		} else if fields := strings.Fields(line); len(fields) > 0 && strings.HasPrefix(line, "  ") {
			groups[title] = append(groups[title], fields[0])
		}
	}
	assert.Subset(t, groups["Serve"], []string{"init", "serve", "token"})
	assert.Equal(t, []string{"holders", "lookup"}, groups["Ask"])
	assert.Equal(t, []string{"doctor", "ping", "pools", "router", "stat", "status"}, groups["Examine"])
	assert.Equal(t, []string{"events", "evict", "hash", "reset", "store"}, groups["Debug"])
	assert.Equal(t, []string{"completion", "version"}, groups["Other"])

	topic := hitline(t, "", "help", "connection")
	assert.Equal(t, exitDone, topic.code)
	assert.Equal(t, topic, hitline(t, "", "connection"))
	for _, flag := range []string{"--connect", "--timeout", "--token-file", "--tls-ca", "--tls-cert", "--tls-key", "--tls-server-name"} {
		assert.Contains(t, topic.stdout, "      "+flag+" ")
	}
	connected := 0
	for _, cmd := range newRootCmd().Commands() {
		if cmd.Flags().Lookup("connect") == nil || !cmd.Runnable() {
			continue
		}
		connected++
		help := hitline(t, "", "help", cmd.Name()).stdout
		assert.Contains(t, help, "\nFlags of the connection: hitline help connection\n", cmd.Name())
		assert.NotContains(t, help, "--tls-", cmd.Name())
	}
	assert.Equal(t, 10, connected)
}

// A flag of one name has the same short form, type and value in all commands, and a short form one
// meaning.
func TestFlagsAgree(t *testing.T) {
	shorts := map[string]string{"n": "batches", "i": "interval", "y": "yes", "h": "help", "v": "version"}
	types := map[string]string{}
	for _, cmd := range append(newRootCmd().Commands(), newRootCmd()) {
		cmd.InitDefaultHelpFlag()
		cmd.InitDefaultVersionFlag()
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Shorthand != "" {
				assert.Contains(t, strings.Fields(shorts[f.Shorthand]), f.Name, "-%s of %s", f.Shorthand, cmd.Name())
			} else {
				assert.NotContains(t, strings.Fields(strings.Join(slices.Collect(maps.Values(shorts)), " ")), f.Name, cmd.Name())
			}
			value, usage := pflag.UnquoteUsage(f)
			value += " " + f.Value.Type()
			if f.Name != "tokens" { // a count of holders is not that of a lookup
				assert.Equal(t, value, cmp.Or(types[f.Name], value), "--%s of %s", f.Name, cmd.Name())
			}
			types[f.Name] = value
			assert.NotContains(t, usage, "\n", "help wraps lines: --%s of %s", f.Name, cmd.Name())
			assert.NotContains(t, usage, "(default:", "--%s of %s", f.Name, cmd.Name())
		})
	}
	for _, other := range []string{"count", "every", "samples", "conns", "seconds"} {
		assert.NotContains(t, types, other)
	}
}

// Each command that takes --json prints one line also if its arguments are refused.
func TestJSONWhenRefused(t *testing.T) {
	for _, cmd := range newRootCmd().Commands() {
		if takesJSON(cmd) {
			got := hitline(t, "", cmd.Name(), "--json", "x", "y", "z")
			assert.Equal(t, exitUsage, got.code, cmd.Name())
			assert.Regexp(t, `^\{"error":".*","exit":2\}\n$`, got.stdout, cmd.Name())
			assert.Regexp(t, `^hitline: .*\nhint: hitline `+cmd.Name()+` --help\n$`, got.stderr)
		}
	}
}

// Shells complete what a flag or an argument may be.
func TestCompletion(t *testing.T) {
	const noFiles = 4
	for line, want := range map[string]string{
		"hash --engine ": "vllm sglang",
		"init --for ":    "vllm-mooncake router memory",
		"hash --vllm ":   strings.Join(coordinator.Releases(), " "),
	} {
		got := hitline(t, "", append([]string{"__completeNoDesc"}, strings.Split(line, " ")...)...)
		assert.Equal(t, exitDone, got.code)
		assert.Equal(t, append(strings.Fields(want), fmt.Sprintf(":%d", noFiles)), strings.Fields(got.stdout), line)
	}
	assert.Contains(t, hitline(t, "", "completion", "bash").stdout, "hitline")
}

// takesJSON reports whether a command has --json.
func takesJSON(cmd *cobra.Command) bool {
	switch cmd.Name() {
	case "lookup", "pools", "store", "evict", "reset", "ping", "stat", "status", "doctor", "token", "hash", "holders", "router", "init", "version":
		return true
	}
	return false
}
