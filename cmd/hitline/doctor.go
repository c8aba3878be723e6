package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/cmd/hitline/internal/diagnosis"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/tokens"
)

// doctorResult is what doctor prints: with --json as one line.
type doctorResult struct {
	*diagnosis.Report
	Error string `json:"error,omitempty"` // also the last line of standard error
	Exit  int    `json:"exit"`
}

// newDoctorCmd returns the command that examines the configured store.
func newDoctorCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the configured store",
		Long: `doctor reads the configuration of serve, connects to the store that it names,
and compares some of its keys with the configured pool. It changes nothing. With
a prompt that an engine has stored it also says where the hit of each group
ends, and why, as lookup --explain does. hitline router tells what a router
follows.

It exits with 1 if it finds a problem.`,
		Example: "  hitline doctor --config hitline.yaml\n  hitline doctor --config hitline.yaml --tokens 1024 --hashes-file prompt.hex",
		Args:    cli.NoArgs,
	}
	var t target
	promptTokens := cmd.Flags().Uint32("tokens", 0, "length of a stored prompt in `tokens`")
	file := cmd.Flags().String("hashes-file", "", "`file` with its hashes in hex, one a line; - is standard input")
	cmd.Flags().StringVar(&t.pool, "pool", "", "take the pool of this `name` of a running server")
	cli.DurationVarP(cmd.Flags(), &t.timeout, "timeout", "", 5*time.Second, "most `time` to wait for the store, and for the server")
	cli.JSONFlag(cmd.Flags(), &t.json)
	source := configFlags(cmd)
	cli.TopicFlags(cmd.Flags(), connectionTopic, func(group *pflag.FlagSet) {
		t.secure.AddAddress(group)
		t.secure.Add(group)
	})
	t.setWarn(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src, err := source()
		if err != nil {
			return err
		}
		if err := t.checkTimeout(); err != nil {
			return err
		}
		cfg, err := config.Load(src)
		if err != nil {
			return configError(err)
		}
		var toMend string
		if t.pool != "" {
			if err := t.check(); err != nil {
				return err
			}
			if toMend, err = t.usePool(cmd.Context(), cfg); err != nil {
				return err
			}
		} else if cmd.Flags().Changed("connect") {
			return usagef("--connect is of no use without --pool")
		} else if given := t.secure.Given(); given != "" {
			return usagef("--%s is of no use without --pool", given)
		}
		prompt, err := loadPrompt(cmd, *promptTokens, *file)
		switch {
		case err != nil:
			return err
		case !cfg.ServesPool() && prompt.Hashes.Len() > 0:
			return configError(errors.New("no pool is configured; give --pool and the name of one that a running server has, or configure pool"))
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
		defer cancel()
		return doctor(ctx, cmd, cfg, &t, prompt, toMend)
	}
	return cmd
}

// usePool makes the server's pool that of the configuration. It returns what its lookups lost most by, "" if that is not known.
func (t *target) usePool(ctx context.Context, cfg *config.Config) (toMend string, err error) {
	err = t.do(ctx, func(ctx context.Context, c *client.Client) error {
		pool, _ := c.Pool()
		if pool.Backend != cfg.Backend.Name() {
			return configError(fmt.Errorf("the server's backend is %s, and this configuration's is %s: configure backend.%s as the server has it", pool.Backend, cfg.Backend.Name(), pool.Backend))
		}
		if err := cfg.UsePool(fmt.Sprintf("pool %q of %s", t.pool, t.connect), pool.Pool); err != nil {
			return configError(err)
		}
		if stat, err := c.Stat(ctx); err == nil && stat.PoolTokens != nil { // without the permission it is not told
			if place, share, ok := tokens.ToMend(stat.Tokens); ok {
				toMend = fmt.Sprintf("first to mend: %s, %.1f %% of the tokens that the pool was asked for: %s", place, 100*share, place.Cure())
			}
		}
		return nil
	})
	return toMend, err
}

// loadPrompt returns the prompt that the flags describe. Without the flags it has no
// hashes.
func loadPrompt(cmd *cobra.Command, tokens uint32, file string) (diagnosis.Prompt, error) {
	given := cmd.Flags().Changed("tokens")
	switch {
	case given != (file != ""):
		return diagnosis.Prompt{}, usagef("--tokens and --hashes-file go together")
	case !given:
		return diagnosis.Prompt{}, nil
	}
	list, err := loadHashes(cmd, file)
	if err != nil {
		return diagnosis.Prompt{}, err
	}
	return diagnosis.Prompt{Tokens: int64(tokens), Hashes: list.forRequest()}, nil
}

// doctor examines what cfg names and prints the report.
func doctor(ctx context.Context, cmd *cobra.Command, cfg *config.Config, t *target, prompt diagnosis.Prompt, toMend string) error {
	report, err := examineStore(ctx, cfg, prompt)
	if report == nil {
		return err
	}
	result := doctorResult{Report: report}
	result.Pool = t.pool
	if toMend != "" {
		result.Notes = append(result.Notes, toMend)
	}
	if n := len(result.Problems); err == nil && n > 0 {
		err = fmt.Errorf("%d %s found", n, plural(n, "problem"))
	}
	result.Exit = exitCode(err)
	if err != nil {
		result.Error, err = err.Error(), cli.WithClass(err, cli.ErrReported)
	}
	if printErr := cli.PrintResult(cmd, t.json, result, result.String()); printErr != nil {
		return printErr
	}
	return err
}

// examineStore examines the store of cfg. Without a report the configuration is wrong.
func examineStore(ctx context.Context, cfg *config.Config, prompt diagnosis.Prompt) (*diagnosis.Report, error) {
	var rules *coordinator.Coordinator
	if cfg.ServesPool() {
		var err error
		if rules, err = coordinator.New(cfg.Pool); err != nil {
			return nil, configError(cfg.WithOrigin("pool", err))
		}
	}
	store, err := openStore(cfg, slog.New(slog.DiscardHandler))
	switch {
	case err != nil:
		return nil, configError(err)
	case store == nil:
		return diagnosis.DescribeMemory(rules), nil
	}
	defer store.Close() // nothing was written
	report, err := diagnosis.Examine(ctx, rules, store.forDiagnosis(), prompt)
	if err != nil {
		err = cli.WithClass(err, client.ErrConnect)
	}
	return report, err
}

// plural returns word, with an s unless n is 1.
func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// String returns the report as a table.
func (r *doctorResult) String() string {
	var table cli.Table
	for _, row := range [][2]string{
		{"pool", r.Pool}, {"backend", r.Backend}, {"address", r.Address}, {"server", r.Server}, {"mode", r.Mode},
	} {
		if row[1] != "" {
			table.Row(row[0], row[1])
		}
	}
	if r.Nodes > 0 {
		table.Row("nodes", r.Nodes)
	}
	if r.RoundTrip > 0 {
		table.Row("round trip", time.Duration(r.RoundTrip)*time.Microsecond)
	}
	if r.LeaseMS > 0 {
		table.Row("lease", fmt.Sprintf("%v, as the store states itself", time.Duration(r.LeaseMS)*time.Millisecond))
	}
	for _, pattern := range r.Patterns {
		table.Row("key", pattern)
	}
	if more := r.GroupRanks - len(r.Patterns); more > 0 {
		table.Row("", fmt.Sprintf("and %d more", more))
	}
	for _, note := range r.Notes {
		table.Row("note", note)
	}
	for _, problem := range r.Problems {
		table.Row("problem", problem)
	}
	text := table.String()
	if r.Prompt != nil {
		text += "\n\n" + formatExplanation(r.Prompt.Explanation)
	}
	return text
}
