package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/bench/picture"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// pictureFlags are the flags of hitbench picture; written by cobra.
type pictureFlags struct {
	from []string
	out  string
}

// pictureCommand returns the command.
func (a *app) pictureCommand() *cobra.Command {
	var f pictureFlags
	cmd := &cobra.Command{
		Use:   "picture KIND --from FILE[,FILE...] --out NAME",
		Short: "Draw what the other commands measured",
		Long: `Draw reports, as the other commands print them with --json, into NAME.svg, and
for dark pages into NAME-dark.svg.

Kinds, and what they take:
  latency   percentiles of the latency: reports of run at one rate
  cost      round trip by number of hashes: reports of compare
  replay    hit ratio and latency over time: reports of replay
  streams   time between tokens in an engine: what make e2e ONLY=latency
            writes with JSON=FILE

Lines are named at their ends, those of several files also by the file, without
.json; NAME=FILE names one otherwise. A report of a run that failed or was cut
short, or with wrong answers, is not drawn.

Exit codes: 0 done; 1 a picture could not be written; 2 wrong usage, or a file
is no such report.`,
		Example: `  hitbench picture latency --from run.json --out latency
  hitbench picture latency --from before=old.json,after=new.json --out both`,
		ValidArgs: picture.Kinds(),
		Args:      cli.OneArg("kind", picture.Kinds()...),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.picture(args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&f.from, "from", nil, "reports to draw, as `file` or NAME=FILE; repeatable, or separated by commas")
	flags.StringVar(&f.out, "out", "", "`path` of the pictures without their endings; its directory is made")
	_ = cmd.MarkFlagRequired("from") // fails for an unknown flag only
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

// picture runs the command and prints the names of the files.
func (a *app) picture(kind string, f pictureFlags) error {
	if name := filepath.Base(f.out); f.out == "" || strings.HasSuffix(f.out, "/") || name == "." || name == ".." {
		return cli.Usagef("--out %q names no picture; give a path such as docs/pictures/%s", f.out, kind)
	}
	sources, err := readSources(f.from)
	if err != nil {
		return err
	}
	files, err := picture.Draw(kind, sources)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.out), 0o755); err != nil {
		return fmt.Errorf("cannot make the directory of the pictures: %w", err)
	}
	for _, file := range files {
		path := f.out + file.Suffix
		if err := os.WriteFile(path, file.Content, 0o644); err != nil {
			return fmt.Errorf("cannot write a picture: %w", err)
		}
		fmt.Fprintln(a.stdout, path)
	}
	return nil
}

// readSources reads the reports at FILE or NAME=FILE.
func readSources(from []string) ([]picture.Source, error) {
	var sources []picture.Source
	for _, text := range from {
		name, path, named := strings.Cut(text, "=")
		if !named {
			name, path = strings.TrimSuffix(filepath.Base(text), ".json"), text
		}
		report, err := os.ReadFile(path)
		if err != nil {
			return nil, cli.Usagef("--from: %w", err)
		}
		sources = append(sources, picture.Source{Name: name, JSON: report})
	}
	return sources, nil
}
