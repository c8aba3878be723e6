package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/internal/chart"
	"github.com/hitline/hitline/lookup/api"
)

// pictureCommand returns the command.
func (a *app) pictureCommand() *cobra.Command {
	var from, out string
	cmd := &cobra.Command{
		Use:   "picture --from FILE --out FILE.svg",
		Short: "Draw what make e2e ONLY=latency measured",
		Long: `Draw what make e2e ONLY=latency JSON=FILE measured in an engine: what running
streams notice of prompts that arrive, for each way to look up. A line across
the end of a bar goes from the lowest round to the highest.

Exit codes: 0 done; 1 the picture could not be written; 2 wrong usage, or the
file has no such row.`,
		Example: "  hitbench picture --from latency.json --out streams.svg",
		Args:    cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := os.ReadFile(from)
			if err != nil {
				return cli.Usagef("--from: %w", err)
			}
			var row struct {
				Chart *chart.Chart `json:"chart"`
				OK    bool         `json:"ok"`
			}
			if err := json.Unmarshal(text, &row); err != nil {
				return cli.WithClass(fmt.Errorf("%s: not one line of JSON: %w", from, err), api.ErrConfig)
			}
			if row.Chart == nil || !row.OK {
				return cli.WithClass(errors.New(from+": no chart of a row that succeeded; give the file of make e2e ONLY=latency JSON=FILE"), api.ErrConfig)
			}
			if err := os.WriteFile(out, row.Chart.SVG(), 0o644); err != nil {
				return fmt.Errorf("cannot write the picture: %w", err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&from, "from", "", "`file` that make e2e wrote")
	flags.StringVar(&out, "out", "", "`file` for the picture, in SVG")
	_ = cmd.MarkFlagRequired("from") // fails for an unknown flag only
	_ = cmd.MarkFlagRequired("out")
	return cmd
}
