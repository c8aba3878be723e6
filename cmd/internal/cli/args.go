package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// NoArgs returns an error for any argument, with the flag that an address or a
// file of configuration is for. It is for cobra.Command.Args.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if flag := flagFor(cmd, args[0]); flag != "" {
		return Usagef("unexpected argument %q; give it as --%s", args[0], flag)
	}
	return Usagef("unexpected argument %q", args[0])
}

// flagFor returns the flag that an argument looks like a value of, or "": other
// load generators and clients take the address without a flag.
func flagFor(cmd *cobra.Command, arg string) string {
	var flags []string
	switch {
	case strings.HasSuffix(arg, ".yaml"), strings.HasSuffix(arg, ".yml"):
		flags = []string{"config"}
	case strings.HasSuffix(arg, ".jsonl"), strings.HasSuffix(arg, ".jsonl.gz"):
		flags = []string{"trace"}
	case strings.Contains(arg, ":"):
		flags = []string{"listen", "connect"}
	}
	for _, name := range flags {
		if cmd.Flags().Lookup(name) != nil {
			return name
		}
	}
	return ""
}

// AtMostOne refuses more than one argument. It is for cobra.Command.Args.
func AtMostOne(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return Usagef("unexpected argument %q", args[1])
	}
	return nil
}

// Required returns the error of flags that are missing, nil without one.
func Required(missing ...string) error {
	switch len(missing) {
	case 0:
		return nil
	case 1:
		return Usagef("--%s is required", missing[0])
	}
	return Usagef("--%s are required", strings.Join(missing, " and --"))
}
