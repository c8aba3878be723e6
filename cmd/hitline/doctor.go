package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// diagnosis is what doctor prints, and with --json its one line.
type diagnosis struct {
	Backend   string   `json:"backend"`
	Address   string   `json:"address,omitempty"`
	Server    string   `json:"server,omitempty"`
	Mode      string   `json:"mode,omitempty"`
	Nodes     int      `json:"nodes,omitempty"`
	RoundTrip int64    `json:"round_trip_us,omitempty"`
	Blocks    *int64   `json:"blocks,omitempty"` // of the pool, nil if not known
	Estimated bool     `json:"blocks_estimated,omitempty"`
	Patterns  []string `json:"key_patterns"` // the first few
	Places    int      `json:"places"`       // groups times their ranks: how many patterns there are
	Sampled   int      `json:"keys_sampled"`
	// Prompt is what a lookup of the given prompt answers; nil without one.
	Prompt *promptHit `json:"prompt,omitempty"`
	findings
	Error string `json:"error,omitempty"` // the last line of standard error
	Exit  int    `json:"exit"`
}

// newDoctor returns the command that examines the configured store.
func newDoctor() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the configured store",
		Long: `doctor reads the configuration that serve would, connects to the store that it
names, and shows what the store says of itself and which keys lookups ask for. It
changes nothing. It looks at a few keys and says how they differ from the configured
pool's; those of a Mooncake store it sees if backend.mooncake.admin is configured.

With a prompt, --tokens and --hashes-file as for lookup, it also looks for that
prompt's blocks of every group. By them it compares what keys alone do not show:
the tokens of a block, the length of a lookup's hashes, and the order of the
groups. It says what a lookup of the prompt hits, and if that is not all, where
each group ends and why. Take a prompt that an engine has stored.

It exits with 0 if all is well, 1 if something is wrong, each problem a line that
says what to do, 2 if the configuration is wrong, and 3 without a connection.`,
		Example: "  hitline doctor --config hitline.yaml\n  hitline doctor --config hitline.yaml --tokens 1024 --hashes-file prompt.hex\n  hitline doctor --config hitline.yaml --json | jq .problems",
		Args:    noArgs,
	}
	source := configFlags(cmd)
	timeout := cmd.Flags().Duration("timeout", 5*time.Second, "most `time` to wait for the store")
	asJSON := cmd.Flags().Bool("json", false, "print one line of JSON")
	tokens := cmd.Flags().Uint32("tokens", 0, "length of a stored prompt in `tokens`, to look for its blocks")
	file := cmd.Flags().String("hashes-file", "", "`file` with that prompt's hashes in hex, one a line; - is standard input")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src, err := source()
		if err != nil {
			return err
		}
		if *timeout <= 0 {
			return usagef("--timeout is %v, must be more than 0", *timeout)
		}
		cfg, err := config.Load(src)
		if err != nil {
			return configError(err)
		}
		p, err := loadPrompt(cmd, *tokens, *file)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		return doctor(ctx, cmd, cfg, p, *asJSON)
	}
	return cmd
}

// loadPrompt returns the prompt that the flags describe, one without hashes if they do
// not.
func loadPrompt(cmd *cobra.Command, tokens uint32, file string) (givenPrompt, error) {
	given := cmd.Flags().Changed("tokens")
	switch {
	case given != (file != ""):
		return givenPrompt{}, usagef("--tokens and --hashes-file go together")
	case !given:
		return givenPrompt{}, nil
	}
	list, err := loadHashes(cmd, file)
	if err == nil && list.count() == 0 {
		err = configError(fmt.Errorf("%s holds no hashes; give those of a prompt that is stored", file))
	}
	if err != nil {
		return givenPrompt{}, err
	}
	all := netproto.NewHashes(list.blob, list.hashLen)
	return givenPrompt{promptOf(lookup.LookupEvent{NumTokens: int64(tokens), NumHashes: list.count(), Hashes: all}), all}, nil
}

// doctor examines the store of cfg and prints what it has found.
func doctor(ctx context.Context, cmd *cobra.Command, cfg *config.Config, p givenPrompt, asJSON bool) error {
	rules, err := coordinator.New(cfg.Pool)
	if err != nil {
		return configError(cfg.Blame("pool", err))
	}
	store, err := openStore(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return configError(err)
	}
	d := &diagnosis{Backend: cfg.Backend.Name()}
	d.patterns(rules)
	if store == nil {
		d.note("the memory backend is in serve's own process: there is nothing to connect to; hitline stat shows what is in it")
	} else {
		err = d.examine(ctx, expected{cfg, rules}, store, p)
		_ = store.Close()
	}
	if err == nil && len(d.Problems) > 0 {
		err = fmt.Errorf("%d %s found", len(d.Problems), plural(len(d.Problems), "problem"))
	}
	d.Exit = exitCode(err)
	if err != nil {
		d.Error, err = err.Error(), classed{err, errTold}
	}
	if failed := printResult(cmd, asJSON, d, d.text()); failed != nil {
		return failed
	}
	return err
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// shownPatterns is how many key patterns are shown.
const shownPatterns = 4

// patterns notes how the keys begin that lookups ask for.
func (d *diagnosis) patterns(rules *coordinator.Coordinator) {
	for g := range rules.NumGroups() {
		for _, rank := range rules.Ranks(g) {
			if d.Places++; d.Places <= shownPatterns {
				d.Patterns = append(d.Patterns, rules.KeyPrefix(g, rank)+"HASH")
			}
		}
	}
}

// examine asks the store about itself and its keys. Its error means that there is
// no connection.
func (d *diagnosis) examine(ctx context.Context, e expected, s *store, p givenPrompt) error {
	d.Address = s.String()
	section := "backend." + d.Backend
	info, err := s.info(ctx)
	if err != nil {
		if !errors.Is(err, backend.ErrReply) && !s.connects(ctx) {
			return classed{err, client.ErrConnect}
		}
		d.problem("%v; see %s", err, section)
		return nil
	}
	d.Server, d.Mode, d.Nodes, d.RoundTrip = info.Server, info.Mode, info.Nodes, info.RoundTrip.Microseconds()
	if info.Blocks >= 0 {
		d.Blocks, d.Estimated = &info.Blocks, info.Sampled
	}
	// A lookup takes up to four rounds.
	if timeout := s.remote.Timeout; 4*info.RoundTrip > timeout {
		d.problem("a round trip of %v does not fit a lookup into %v: raise %s.timeout, or run hitline nearer to the store", info.RoundTrip.Round(time.Microsecond), timeout, section)
	}
	if info.Replica {
		d.note("%s is a replica: lookups work, and a store or an evict is refused", d.Address)
	}
	if e.cfg.Pool.ModelName == "" {
		d.problem("pool.model_name is empty, which no engine's is: set it to the engine's model")
	}
	ours := d.examineKeys(ctx, e, s)
	blocks := d.examinePrompt(ctx, e, s, p, ours)
	if len(d.Problems) == 0 {
		e.noteOrder(ours, blocks, &d.findings)
	}
	return nil
}

// examineKeys looks at some of the keys and returns those of the pool.
func (d *diagnosis) examineKeys(ctx context.Context, e expected, s *store) (ours sample) {
	if s.sample == nil {
		d.note("keys were not looked at: name the port of the masters that lists them in backend.mooncake.admin, or compare the pattern with a key of its /get_all_keys")
		return ours
	}
	found, err := s.sample(ctx)
	switch {
	case errors.Is(err, backend.ErrReply): // not the port that lists them
		d.problem("keys could not be looked at: %v", err)
		return ours
	case err != nil:
		d.note("keys were not looked at: %v", err)
		return ours
	}
	d.Sampled = len(found.keys)
	e.compare(found, &d.findings)
	return found.of(poolName(e.rules))
}

// examinePrompt looks for the blocks of a prompt, if one is given, and returns them.
func (d *diagnosis) examinePrompt(ctx context.Context, e expected, s *store, p givenPrompt, ours sample) promptBlocks {
	if p.numHashes == 0 || !p.compareLength(ours, &d.findings) || !e.compareBlockSize(p.prompt, &d.findings) {
		return make(promptBlocks, e.rules.NumGroups())
	}
	problems := len(d.Problems)
	b, err := e.comparePrompt(ctx, s, p.prompt, true, &d.findings)
	switch {
	case err != nil:
		d.problem("the prompt's blocks could not be looked for: %v", err)
		return make(promptBlocks, e.rules.NumGroups())
	case len(d.Problems) == problems:
		d.examineHit(ctx, e, s, p, b.any())
	}
	return b
}

// connects tells whether anything takes a connection at the store's addresses.
func (s *store) connects(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	for _, address := range s.addresses {
		network := "tcp"
		if strings.HasPrefix(address, "/") {
			network = "unix"
		}
		dialer := net.Dialer{Timeout: time.Second}
		if conn, err := dialer.DialContext(ctx, network, address); err == nil {
			_ = conn.Close()
			return true
		} else if errors.Is(err, os.ErrPermission) {
			return true // there, and not for us
		}
	}
	return false
}

// text lays d out for people.
func (d *diagnosis) text() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("backend", "%s", d.Backend)
	if d.Address != "" {
		line("address", "%s", d.Address)
	}
	if d.Server != "" {
		line("server", "%s", d.Server)
	}
	if d.Mode != "" {
		line("mode", "%s", d.Mode)
	}
	if d.Nodes > 0 {
		line("nodes", "%d", d.Nodes)
	}
	if d.RoundTrip > 0 {
		line("round trip", "%v", time.Duration(d.RoundTrip)*time.Microsecond)
	}
	if d.Blocks != nil && d.Estimated {
		line("blocks", "%d, estimated", *d.Blocks)
	} else if d.Blocks != nil {
		line("blocks", "%d", *d.Blocks)
	}
	for _, pattern := range d.Patterns {
		line("key", "%s", pattern)
	}
	if more := d.Places - len(d.Patterns); more > 0 {
		line("", "and %d more", more)
	}
	for _, note := range d.Notes {
		line("note", "%s", note)
	}
	for _, problem := range d.Problems {
		line("problem", "%s", problem)
	}
	_ = w.Flush() // to memory
	return strings.TrimSuffix(out.String(), "\n")
}
