package main

import (
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// poolFlags describe the pool of a server that is started.
type poolFlags struct {
	config    string
	groups    string
	blockSize int
}

func (f *poolFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "config", "", "its configuration `file`")
	flags.StringVar(&f.groups, "groups", "", "its pool's groups as `YAML`, as in a configuration: [{kind: full_attention, block_size: 16}, …]")
	flags.IntVar(&f.blockSize, "block-size", 0, "`tokens` that one hash covers; 0 for its default")
}

// parseLengths reads what --hashes says.
func parseLengths(text string) (load.Lengths, error) {
	least, most, spread := strings.Cut(text, "-")
	if !spread {
		most = least
	}
	var l load.Lengths
	var err, errMost error
	l.Least, err = strconv.Atoi(least)
	l.Most, errMost = strconv.Atoi(most)
	if err != nil || errMost != nil || l.Most == 0 {
		return l, cli.Usagef("--hashes %q; write a number such as 64, or a spread such as 64-4096", text)
	}
	return l, nil
}
