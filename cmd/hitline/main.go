// Command hitline serves prefix-cache lookups to LLM engines. It is also a client of such
// a server.
//
// Every command exits with 0 when it is done, 1 when the answer was bad or
// refused, 2 on wrong usage or configuration, and 3 when there was no connection
// or it was lost. With --json a command prints exactly one line of JSON on
// standard output, {"error": …, "exit": …} when it failed; all else goes to
// standard error.
package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // the certificate authorities of an image that has no other files

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/internal/buildinfo"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs one command line, without the program's name, and returns its exit code. The
// end of ctx stops serve as SIGTERM does.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Program{Root: newRootCmd()}.Run(ctx, args, stdin, stdout, stderr)
}

// newRootCmd returns the command tree.
func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:   "hitline",
		Short: "Prefix-cache lookup service for LLM serving",
		Long: `hitline answers how many leading tokens of a prompt are in the KV-cache pool.
serve runs the service. Other commands ask one, at $HITLINE_ADDRESS.

Exit codes: 0 done; 1 refused, or a bad answer; 2 wrong usage or configuration;
3 no connection, or it was lost. With --json a command prints one line of JSON.`,
		Version: buildinfo.Read().Version,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.HasParent() || cmd.Name() == "help" {
				return nil
			}
			return configError(config.CheckVariables(os.Environ()))
		},
	}
	cli.AddGroup(root, "Serve", newServeCmd(), newInitCmd(), newTokenCmd())
	cli.AddGroup(root, "Ask", newLookupCmd(), newHoldersCmd())
	cli.AddGroup(root, "Examine", newPingCmd(), newPoolsCmd(), newRouterCmd(), newStatusCmd(), newStatCmd(), newDoctorCmd())
	cli.AddGroup(root, "Debug", newStoreCmd(), newEvictCmd(), newResetCmd(), newEventsCmd(), newHashCmd())
	root.AddCommand(cli.VersionCommand("hitline"))
	cli.AddTopic(root, connectionTopic, "has the flags of connections", connectionHelp, new(target).addConnectionFlags)
	cli.Prepare(root)
	return root
}
