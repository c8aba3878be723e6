package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
)

// initFiles has a configuration for each of initUses.
//
//go:embed init/*.yaml
var initFiles embed.FS

// initUses are what a configuration may be for. The first is the default.
var initUses = []string{"vllm-mooncake", "router", "memory"}

// initText returns the configuration for a use.
func initText(use string) (string, error) {
	if !slices.Contains(initUses, use) {
		return "", usagef("unknown use %q; --for is one of %s", use, strings.Join(initUses, ", "))
	}
	text, err := initFiles.ReadFile("init/" + use + ".yaml")
	return strings.Replace(string(text), "NEWEST", coordinator.NewestRelease(), 1), err
}

// newInitCmd returns the command that writes a configuration to start from.
func newInitCmd() *cobra.Command {
	var asJSON, force bool
	var use string
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a configuration to start from",
		Long: `init writes a short configuration for serve --config:

  vllm-mooncake  lookups for vLLM over a Mooncake store
  router         which engine has most of a prompt, by the engines' KV events
  memory         an index that clients fill

FILE is hitline.yaml if it is left out, - is standard output. A file that exists
is not overwritten.

With --json: {"file"}`,
		Example: "  hitline init\n  hitline init --for router router.yaml\n  hitline init --for memory -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("unexpected argument %q", args[1])
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&use, "for", initUses[0], "`use`: vllm-mooncake, router or memory")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite a file that exists")
	cli.JSONFlag(cmd.Flags(), &asJSON)
	cli.Complete(cmd, "for", initUses...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path := "hitline.yaml"
		if len(args) > 0 {
			path = args[0]
		}
		text, err := initText(use)
		switch {
		case err != nil:
			return err
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
		others := ""
		if !cmd.Flags().Changed("for") {
			others = " for vLLM over Mooncake (--for router or memory writes others)"
		}
		return cli.PrintResult(cmd, asJSON, map[string]string{"file": path}, path+" written"+others+"; edit it, then: hitline serve --config "+path+" --check")
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
