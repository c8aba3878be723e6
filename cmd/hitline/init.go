package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// newInitCmd returns the command that writes a configuration to start from.
func newInitCmd() *cobra.Command {
	var asJSON, force bool
	var backendName string
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a configuration to start from",
		Long: `init writes a file for serve --config that has every section and field with its
default or an example, commented out: as it is, it changes nothing. FILE is
hitline.yaml if it is left out, - is standard output. A file that exists is not
overwritten.

With --json: {"file"}`,
		Example: "  hitline init\n  hitline init --backend redis redis.yaml\n  hitline init -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("unexpected argument %q", args[1])
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&backendName, "backend", "", "`name` of the backend whose section is no comment: memory, redis or mooncake")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite a file that exists")
	addJSONFlag(cmd, &asJSON)
	cli.Complete(cmd, "backend", config.BackendNames()...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path := "hitline.yaml"
		if len(args) > 0 {
			path = args[0]
		}
		text, err := config.Template(backendName)
		switch {
		case err != nil:
			return usagef("--backend: %w", err)
		case cmd.Flags().Changed("backend") && backendName == "":
			return usagef("--backend names no backend")
		case path == "":
			return usagef("FILE is empty; leave it out for hitline.yaml")
		case path == "-" && asJSON:
			return usagef("--json is of no use with -: the file itself goes to standard output")
		case path == "-":
			return cli.PrintResult(cmd, false, nil, strings.TrimSuffix(text, "\n"))
		}
		if err := writeNew(path, text, force); err != nil {
			return configError(err)
		}
		return cli.PrintResult(cmd, asJSON, map[string]string{"file": path}, path+" written; now: hitline serve --config "+path+" --check --explain")
	}
	return cmd
}

// writeNew writes a file. Unless force is set it must be new.
func writeNew(path, text string, force bool) error {
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	file, err := os.OpenFile(path, flags, 0o666) // less what the umask takes
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s exists; give another name, or --force to overwrite it", path)
	case err != nil:
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err != nil {
		if !force {
			_ = os.Remove(path) // it would be in the way of the next attempt, which has the next error
		}
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	return nil
}
