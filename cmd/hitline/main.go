// Command hitline serves prefix-cache lookups to LLM engines. It is also a client of such
// a server.
//
// Every command exits with 0 when it is done, 1 when the answer was bad or
// refused, 2 on wrong usage or configuration, and 3 when there was no connection
// or it was lost. With --json a command prints exactly one line of JSON on
// standard output, {"error": …, "exit": …} when it failed; all else goes to
// standard error. stat --watch prints one line at each interval.
package main

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs one command line, without the program's name, and returns its exit code. The
// end of ctx stops serve as SIGTERM does.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCmd()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return reportError(cmd, args, err)
}

// newRootCmd returns the command tree.
func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:   "hitline",
		Short: "Prefix-cache lookup service for LLM serving",
		Long: `hitline answers, for a prompt given by the hashes of its blocks, how many of its
leading tokens are in the KV-cache pool. serve runs the service; the other
commands ask one.

Exit codes: 0 done; 1 the answer was bad or refused; 2 wrong usage or
configuration; 3 no connection or lost.`,
		Example: "  hitline serve --block-size 16\n  hitline ping",
		Args:    refuseUnknown,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("no command given; one of %s", strings.Join(commandNames(cmd), ", "))
		},
		SilenceErrors: true, // reportError prints them
		SilenceUsage:  true,
	}
	root.SuggestionsMinimumDistance = 2 // edits that may separate a typo from a command
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(newHelpCmd())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usagef("%v", err) })
	root.AddCommand(newServeCmd(), newLookupCmd(), newPlanCmd(), newMasksCmd(), newStoreCmd(), newStorePromptCmd(), newEvictCmd(), newResetCmd(), newPingCmd(), newStatCmd(), newEventsCmd(), newSnapshotCmd(), newDoctorCmd(), newTokenCmd(), newHashCmd(), newHoldersCmd(), newVersionCmd())
	return root
}

// newHelpCmd replaces cobra's help command, which exits with 0 for an unknown topic.
func newHelpCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Explain a command",
		Long:    "help prints what hitline, or one of its commands, does.",
		Example: "  hitline help serve",
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			switch {
			case err != nil:
				return usagef("%v", err)
			case topic == cmd.Root():
				err = refuseUnknown(topic, rest)
			default:
				err = refuseArgs(topic, rest)
			}
			if err != nil {
				return err
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		},
	}
}

// refuseUnknown returns an error for arguments of the root command: they name no command.
func refuseUnknown(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q; did you mean %s?", args[0], near[0])
	}
	return usagef("unknown command %q; one of %s", args[0], strings.Join(commandNames(root), ", "))
}

// commandNames returns the names of the commands that help lists.
func commandNames(root *cobra.Command) []string {
	var names []string
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			names = append(names, cmd.Name())
		}
	}
	return names
}

// refuseArgs returns an error for any argument.
func refuseArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}
