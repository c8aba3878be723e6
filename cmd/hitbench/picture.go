package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/bench/picture"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// pictureCommand returns the command.
func (a *app) pictureCommand() *cobra.Command {
	var from, out string
	cmd := &cobra.Command{
		Use:   "picture streams --from FILE --out FILE.svg",
		Short: "Draw what make e2e ONLY=latency measured",
		Long: `Draw what make e2e ONLY=latency JSON=FILE measured in an engine: what running
streams notice of prompts that arrive, for each way to look up. A line across
the end of a bar goes from the lowest round to the highest.

Exit codes: 0 done; 1 the picture could not be written; 2 wrong usage, or the
file has no such row.`,
		Example:   "  hitbench picture streams --from latency.json --out streams.svg",
		ValidArgs: []string{"streams"},
		Args:      cli.OneArg("kind", "streams"),
		RunE: func(_ *cobra.Command, _ []string) error {
			text, err := os.ReadFile(from)
			if err != nil {
				return cli.Usagef("--from: %w", err)
			}
			drawn, err := picture.Streams(text)
			if err != nil {
				return fmt.Errorf("%s: %w", from, err)
			}
			if err := os.WriteFile(out, drawn, 0o644); err != nil {
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
