package main

import (
	"os"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
)

// poolFlags describe the pool of the server.
type poolFlags struct {
	config    string
	groups    string
	blockSize int
}

func (f *poolFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "config", "", "the server's configuration `file`, whose pool is the one to measure")
	flags.StringVar(&f.groups, "groups", "", "the pool's groups as `YAML`, as in a configuration: [{kind: full_attention, block_size: 16}, …]")
	flags.IntVar(&f.blockSize, "block-size", 0, "`tokens` that one hash covers; 0 asks the server, with one full-attention group")
}

// pool returns the pool that the flags describe; its zero value if they do not.
func (f *poolFlags) pool() (pool coordinator.Pool, err error) {
	if f.config != "" {
		if f.groups != "" || f.blockSize != 0 {
			return pool, cli.Usagef("--config describes the whole pool; leave --groups and --block-size out")
		}
		return readPool(f.config)
	}
	pool.HashBlockSize = f.blockSize
	if f.groups == "" {
		return pool, nil
	}
	if err := yaml.UnmarshalWithOptions([]byte(f.groups), &pool.Groups, yaml.Strict()); err != nil {
		return pool, cli.Usagef("--groups: %s", firstLine(err))
	}
	if len(pool.Groups) == 0 {
		return pool, cli.Usagef("--groups lists none")
	}
	return pool, nil
}

// readPool returns the pool that a server's configuration file describes. All else
// in it is the server's to judge.
func readPool(path string) (coordinator.Pool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return coordinator.Pool{}, cli.Usagef("--config: %w", err)
	}
	var config struct {
		Pool coordinator.Pool `yaml:"pool"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return coordinator.Pool{}, cli.Usagef("--config: %s: %s", path, firstLine(err))
	}
	return config.Pool, nil
}

// firstLine returns the first line of an error that spans several.
func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
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
