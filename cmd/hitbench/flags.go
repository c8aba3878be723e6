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
	flags.Float64Var(p, "hit-share", value, "share of lookups that hit whole")
}

func seedFlag(flags *pflag.FlagSet, p *uint64, value uint64) {
	flags.Uint64Var(p, "seed", value, "the same one makes the same requests; 0 for any")
}

func timeoutFlag(flags *pflag.FlagSet, p *time.Duration, value time.Duration, detail string) {
	cli.DurationVarP(flags, p, "timeout", "", value, "longest wait for a start or an answer"+detail)
}

func hitlineFlag(flags *pflag.FlagSet, p *string) {
	flags.StringVar(p, "hitline", "", "`path` of hitline (default beside this program)")
}

// connectionTopic is the help topic of the flags of connections.
const connectionTopic = "connection"

// serverFlags defines the flags for the address of the server to ask, and for connections to it.
func serverFlags(flags *pflag.FlagSet, f *connectflags.Flags) {
	cli.TopicFlags(flags, connectionTopic, func(group *pflag.FlagSet) { connectionFlags(group, f) })
}

func connectionFlags(flags *pflag.FlagSet, f *connectflags.Flags) {
	f.Single = true
	f.AddAddress(flags)
	f.Add(flags)
}
