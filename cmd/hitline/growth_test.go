package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/fakeserver"
)

// What a later server adds to its replies changes nothing that the commands print. HITLINE_TEST_RELEASED_PROGRAM names a
// released program that is to be tested, too: what is added since was no news to it.
func TestGrownReplies(t *testing.T) {
	runs := map[string]func(t *testing.T, stdin string, args ...string) result{"this tree": hitline}
	if program := os.Getenv("HITLINE_TEST_RELEASED_PROGRAM"); program != "" {
		runs["released"] = func(t *testing.T, stdin string, args ...string) result {
			var stdout, stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
			_ = cmd.Run() // its exit code is compared
			return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
		}
	}
	for name, run := range runs {
		t.Run(name, func(t *testing.T) {
			fakeserver.EachGrowth(t, func(t *testing.T, s *fakeserver.Server) string {
				hide := strings.NewReplacer(s.Lookup, "SERVER", s.Router, "SERVER")
				took := regexp.MustCompile(`"round_trip_us":[0-9.]+|[0-9.]+[nµm]?s`)
				all := ""
				for _, line := range []string{
					"stat", "stat --json", "pools", "ping", "ping --json", "lookup --tokens 128 --hashes-file - --explain",
					"store --hashes-file -", "reset --yes", "holders --hashes-file -", "router",
				} {
					address := s.Lookup
					if strings.HasPrefix(line, "holders") || line == "router" {
						address = s.Router
					}
					got := run(t, strings.Repeat("ab", 32), append(strings.Fields(line), "--connect", address)...)
					isRefused := strings.HasPrefix(line, "store") || strings.HasPrefix(line, "reset")
					require.Equal(t, map[bool]int{false: exitDone, true: exitFailed}[isRefused], got.code, "%s: %s", line, got.stderr)
					all += line + "\n" + took.ReplaceAllString(hide.Replace(got.stdout+got.stderr), "TOOK") + "\n"
				}
				return all
			})
		})
	}
}
