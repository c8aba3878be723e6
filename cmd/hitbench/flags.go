package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
)

// The flags that several commands have. detail ends the text of the flag: what it means for the
// command, and its default where that is not value; it begins with a comma, a semicolon or " (".

// lastList is the list of a flag of which the last one given counts, as with flags of one value.
type lastList struct {
	pflag.Value
	list pflag.SliceValue // the same
}

// Set replaces the list.
func (l lastList) Set(text string) error { return l.list.Replace(strings.Split(text, ",")) }

// replaceList has a flag's list replaced, not added to, where the flag is given again.
func replaceList(flags *pflag.FlagSet, name string) {
	f := flags.Lookup(name)
	f.Value = lastList{f.Value, f.Value.(pflag.SliceValue)}
	if f.DefValue == "[]" {
		f.DefValue = "" // help would show an empty list
	}
}

func connectionsFlag(flags *pflag.FlagSet, p *int, value int, detail string) {
	flags.IntVarP(p, "connections", "c", value, "connections"+detail)
}

func durationFlag(flags *pflag.FlagSet, p *time.Duration, value time.Duration, detail string) {
	cli.DurationVarP(flags, p, "duration", "d", value, "how long to measure"+detail)
}

func requestsFlag(flags *pflag.FlagSet, p *int, detail string) {
	flags.IntVarP(p, "requests", "n", 0, "`number` of requests"+detail)
}

func entriesFlag(flags *pflag.FlagSet, p *int, value int, detail string) {
	flags.IntVar(p, "entries", value, "hashes to store first, at least"+detail)
}

// missFlags defines --hit-share, whose default is share, and --miss-at.
func missFlags(flags *pflag.FlagSet, hitShare *float64, missAt *string, share float64) {
	flags.Float64Var(hitShare, "hit-share", share, "share of lookups that hit whole")
	flags.StringVar(missAt, "miss-at", string(workload.MissRandom), "block at which the others miss: first, middle, tail or random")
}

func completeMissAt(cmd *cobra.Command) {
	cli.Complete(cmd, "miss-at", workload.MissFirst, workload.MissMiddle, workload.MissTail, workload.MissRandom)
}

func blockSizeFlag(flags *pflag.FlagSet, p *int, value int, detail string) {
	flags.IntVar(p, "block-size", value, "`tokens` that one hash covers"+detail)
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

// refuse returns an error if one of the flags was given; format says why, of its name.
func refuse(changed func(flag string) bool, format string, names ...string) error {
	for _, name := range names {
		if changed(name) {
			return cli.Usagef(format, name)
		}
	}
	return nil
}

// serverFlags defines the flags for the address of the server to ask, and for connections to it.
func serverFlags(flags *pflag.FlagSet, f *connectflags.Flags) {
	cli.FlagGroup(flags, "Connection", func(group *pflag.FlagSet) {
		f.AddAddress(group)
		f.Add(group)
	})
}

// coresFlags are --client-cores and --server-cores.
type coresFlags struct{ client, server string }

// add defines the flags; the details are as those of the other flags.
func (f *coresFlags) add(flags *pflag.FlagSet, clientDetail, serverDetail string) {
	flags.StringVar(&f.client, "client-cores", "", "`cores` for this program by the system's numbers, such as 0,2-3, or any"+clientDetail)
	flags.StringVar(&f.server, "server-cores", "", "`cores` for the servers that are started here, or any"+serverDetail)
}

// parse returns the cores of both sides, nil for a flag that was not given.
func (f *coresFlags) parse() (client, server []int, err error) {
	if client, err = parseCores("client-cores", f.client); err == nil {
		server, err = parseCores("server-cores", f.server)
	}
	return client, server, err
}

func parseCores(flag, list string) ([]int, error) {
	if list == "" {
		return nil, nil
	}
	cores, err := process.ParseCores(list)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return cores, nil
}
