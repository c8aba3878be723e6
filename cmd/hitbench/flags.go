package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
)

// The flags that several commands have. detail ends the text of the flag: what it means for the
// command, and its default where that is not value; it begins with a comma, a semicolon or " (".

func durationFlag(flags *pflag.FlagSet, p *time.Duration, value time.Duration, detail string) {
	cli.DurationVarP(flags, p, "duration", "d", value, "how long to measure"+detail)
}

func entriesFlag(flags *pflag.FlagSet, p *int, value int, detail string) {
	flags.IntVar(p, "entries", value, "hashes to store first, at least"+detail)
}

func hitShareFlag(flags *pflag.FlagSet, p *float64, value float64) {
	flags.Float64Var(p, "hit-share", value, "share of lookups that hit whole; the others miss at a random block")
}

func seedFlag(flags *pflag.FlagSet, p *uint64, value uint64) {
	flags.Uint64Var(p, "seed", value, "of hashes and order: the same requests again for the same one; 0 for a random one, which the report has")
}

func timeoutFlag(flags *pflag.FlagSet, p *time.Duration, value time.Duration, detail string) {
	cli.DurationVarP(flags, p, "timeout", "", value, "longest wait for a start, a connection or an answer"+detail)
}

func hitlineFlag(flags *pflag.FlagSet, p *string) {
	flags.StringVar(p, "hitline", "", "`path` of hitline (default beside this program, then on PATH)")
}

func jsonFlag(flags *pflag.FlagSet, p *bool) {
	flags.BoolVar(p, "json", false, "print the report as one line of JSON")
}

// serverFlags defines the flags for the address of the server to ask, and for connections to it.
func serverFlags(flags *pflag.FlagSet, f *connectflags.Flags) {
	cli.FlagGroup(flags, "Connection", func(group *pflag.FlagSet) {
		f.AddAddress(group)
		f.Add(group)
	})
}
