package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/story"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// storyCommand returns the command.
func (a *app) storyCommand() *cobra.Command {
	var hitline string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "story NAME",
		Short: "Show in hitline's page what something wrong looks like",
		Long: `story starts a server and clients that behave as engines in which something is
wrong, prints the address of the server's page, and goes on until it is
interrupted. Look at the page, or at hitline status ADDRESS, after a minute.

small-pool   the pool is too small for the conversations
failed-puts  one rank of an engine saves nothing
hash-seed    one engine hashes with another seed

Exit codes: 0 it was interrupted; 2 wrong usage; 3 the server did not start, or
was lost.`,
		Example: "  hitbench story small-pool",
		Args:    cli.AtMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := story.Find(strings.Join(args, ""))
			if err != nil {
				return err
			}
			return a.tell(cmd.Context(), &s, hitline, timeout)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	timeoutFlag(flags, &timeout, 10*time.Second, "")
	hitlineFlag(flags, &hitline)
	cmd.ValidArgs = story.Names()
	return cmd
}

// tell tells a story until ctx ends.
func (a *app) tell(ctx context.Context, s *story.Story, hitline string, timeout time.Duration) error {
	path, err := findHitline(hitline)
	if err != nil {
		return err
	}
	server, page, err := startStory(ctx, s, path, timeout)
	if err != nil {
		return err
	}
	defer server.Stop()
	fmt.Fprintf(a.stdout, "%s: %s.\nThe page: http://%s/\nThe same:  %s status %s\nWhat shows it: %s.\n", s.Name, s.Fault, page, path, page, s.Sign)
	return s.Tell(ctx, server.Addr())
}

// startStory starts the server of a story. It returns the address of its page, too.
func startStory(ctx context.Context, s *story.Story, path string, timeout time.Duration) (server *process.Process, page string, err error) {
	cmd := process.Serve(path, append(s.Environ, "HITLINE_METRICS=127.0.0.1:0"), "--listen", "tcp://127.0.0.1:0", "--backend", "memory")
	server, err = process.Start(ctx, cmd, process.Options{Timeout: timeout, Ready: func(line []byte) (string, bool) {
		addr, metrics, ready := process.ReadReady(line)
		if ready {
			page = metrics
		}
		return addr, ready
	}})
	return server, page, err
}
