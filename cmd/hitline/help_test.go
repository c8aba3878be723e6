package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/cmd/internal/clitest"
	"github.com/hitline/hitline/coordinator"
)

// runHitline is hitline as package clitest takes it.
func runHitline(t *testing.T) clitest.Run {
	return func(args ...string) (code int, stdout, stderr string) {
		got := hitline(t, "", args...)
		return got.code, got.stdout, got.stderr
	}
}

func TestHelp(t *testing.T) { clitest.CheckHelp(t, newRootCmd(), runHitline(t)) }

func TestJSONFailures(t *testing.T) { clitest.CheckJSONFailures(t, newRootCmd(), runHitline(t)) }

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
