package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// NoArgs returns an error for any argument. It is for cobra.Command.Args.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("unexpected argument %q", args[0])
	}
	return nil
}

// OneArg returns what refuses all but one argument, which is one of the values of a kind, such as
// a shell. It is for cobra.Command.Args; the values are its ValidArgs too, for completion.
func OneArg(kind string, values ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return Usagef("give a %s: %s", kind, strings.Join(values, ", "))
		case len(args) > 1:
			return Usagef("unexpected argument %q", args[1])
		case !slices.Contains(values, args[0]):
			return unknown(kind, args[0], values)
		}
		return nil
	}
}
