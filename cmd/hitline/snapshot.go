package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/lookup/snapshot"
)

var snapshotActions = []string{"info", "verify"}

// newSnapshotCmd returns the command that looks at snapshots.
func newSnapshotCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "snapshot info|verify FILE",
		Short: "Show or check a snapshot of the memory index",
		Long: `snapshot reads a file that serve has written for backend.memory.snapshot. Both
actions read all of it and check each part. It asks no server.

  info    prints when and by what it was written, and its pools
  verify  prints one line, and exits with 1 if the file is damaged

serve also refuses a file that is too old, and leaves out pools that it does not
have or that are configured otherwise now.

With --json: {"created", "version", "bytes", "entries", "pools": [{"name",
"digest", "model", "described", "records", "entries"}]}`,
		Example: "  hitline snapshot info /var/lib/hitline/index.snapshot\n  hitline snapshot verify /var/lib/hitline/index.snapshot",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 || !slices.Contains(snapshotActions, args[0]) {
				return usagef("give an action and a file: info FILE, or verify FILE")
			}
			return nil
		},
		ValidArgs: snapshotActions,
	}
	addJSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		info, err := snapshot.Inspect(cmd.Context(), args[1])
		if err != nil {
			return err
		}
		text := fmt.Sprintf("ok: %d entries in %d pools, %d bytes", info.Entries, len(info.Pools), info.Bytes)
		if args[0] == "info" {
			text = formatSnapshot(info, time.Now())
		}
		return cli.PrintResult(cmd, asJSON, info, text)
	}
	return cmd
}

// formatSnapshot returns what is in a snapshot as two tables.
func formatSnapshot(info *snapshot.Info, now time.Time) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "created\t%s\nage\t%v\nversion\t%s\nbytes\t%d\nentries\t%d\n\n", info.Created.Format(time.RFC3339),
		now.Sub(info.Created).Round(time.Second), cli.Printable(info.Version), info.Bytes, info.Entries)
	fmt.Fprintf(w, "pool\tmodel\tentries\tdescribed\tdigest\n")
	for _, p := range info.Pools {
		fmt.Fprintf(w, "%q\t%q\t%d\t%t\t%.8q\n", p.Name, p.Model, p.Entries, p.Described, p.Digest)
	}
	_ = w.Flush() // into memory
	return strings.TrimSuffix(out.String(), "\n")
}
