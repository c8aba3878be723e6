package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/fleet"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// holdersFlags are the flags of the command holders that say what is asked.
type holdersFlags struct {
	query      api.HoldersQuery
	numTokens  int // of the prompt; -1 if it is given by hashes
	hashesFile string
	hash       hashOptions // its file is --tokens-file
}

// newHoldersCmd returns the command that asks which engines have most of a prompt.
func newHoldersCmd() *cobra.Command {
	var t target
	var f holdersFlags
	cmd := &cobra.Command{
		Use:   "holders (--hashes-file FILE | --tokens-file FILE)",
		Short: "Ask which engines have most of a prompt",
		Long: `holders asks a server that follows the KV events of engines (fleet in its
configuration) which of them have most of a prompt. It prints a line for each
that has a prefix, the longest first: its data-parallel rank, the tokens of the
prefix in all its media together, and those of the prefix in each medium alone.

The prompt is given by the hashes of its whole blocks, or by its token ids,
which are hashed here as hitline hash does, with the same flags. The block size
is then that of the model at the server.

With --loadable it also prints how many leading tokens the shared store can
load. Asking may renew the store's leases. The hashes must be whole digests, and
not those of SGLang.

With --json: {"block_size": …, "holders": [{"instance": …, "rank": …,
"tokens": …, "media": {"GPU": …}}], "left_out": …, "loadable_tokens": …}`,
		Example: "  hitline holders --hashes-file prompt.hex\n  seq 64 | hitline holders --model llama --tokens-file - --loadable",
		Args:    cli.NoArgs,
	}
	f.add(cmd)
	t.addFlagsWithoutPool(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		answer, err := f.ask(cmd, &t)
		if err != nil {
			return err
		}
		return cli.PrintResult(cmd, t.json, answer, formatHolders(answer, f.numTokens))
	}
	return cmd
}

// add defines the flags.
func (f *holdersFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.query.Model, "model", "", "`name` of the model (default the only one)")
	flags.StringVar(&f.query.Tenant, "tenant", "", "`name` of its tenant (default \"default\")")
	flags.StringVar(&f.query.Instance, "instance", "", "ask about the engine of this `name` alone")
	flags.IntVar(&f.query.Limit, "limit", 0, "`number` of holders to print at most (default all)")
	flags.BoolVar(&f.query.Loadable, "loadable", false, "ask the shared store, too")
	flags.Int64Var(&f.query.NumTokens, "tokens", 0, "length of the prompt in `tokens`, for --loadable (default that of --tokens-file or of all blocks)")
	flags.StringVar(&f.hashesFile, "hashes-file", "", "`file` with one hash in hex a line, 8 to 64 bytes, all of one length; - is standard input")
	flags.StringVar(&f.hash.file, "tokens-file", "", "`file` with the token ids; - is standard input")
	f.hash.addEngineFlags(cmd, "that of the model")
}

// engineFlags are the flags that say how tokens are hashed.
var engineFlags = append([]string{"engine", "block-size", "salt"}, vllmOnly...)

// check returns an error for flags that contradict each other.
func (f *holdersFlags) check(cmd *cobra.Command) error {
	switch {
	case f.hashesFile == "" && f.hash.file == "":
		return usagef("--hashes-file or --tokens-file is required")
	case f.hashesFile != "" && f.hash.file != "":
		return usagef("--hashes-file and --tokens-file: give one of them")
	case f.query.Limit < 0:
		return usagef("--limit %d is negative", f.query.Limit)
	case f.query.NumTokens < 0:
		return usagef("--tokens %d is negative", f.query.NumTokens)
	case cmd.Flags().Changed("tokens") && !f.query.Loadable:
		return usagef("--tokens is of no use without --loadable")
	case f.hash.file != "":
		return nil
	}
	for _, name := range engineFlags {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is of no use without --tokens-file", name)
		}
	}
	return nil
}

// ask sends the query.
func (f *holdersFlags) ask(cmd *cobra.Command, t *target) (answer *api.HoldersAnswer, err error) {
	if err := f.check(cmd); err != nil {
		return nil, err
	}
	if f.hash.file != "" {
		return f.askTokens(cmd, t)
	}
	f.numTokens = -1
	hashes, err := loadHashes(cmd, f.hashesFile)
	if err != nil {
		return nil, err
	}
	return ask(cmd.Context(), t, func(ctx context.Context, c *client.Client) (*api.HoldersAnswer, error) {
		return c.Holders(ctx, &f.query, hashes.forRequest())
	})
}

// askTokens asks about the prompt of a file with token ids. It asks for the block size of the model first.
func (f *holdersFlags) askTokens(cmd *cobra.Command, t *target) (answer *api.HoldersAnswer, err error) {
	if _, err := f.hash.newHasher(cmd); err != nil { // before anything is asked
		return nil, err
	}
	tokens, err := f.hash.loadTokens(cmd)
	if err != nil {
		return nil, err
	}
	f.numTokens = len(tokens)
	if f.query.Loadable && f.query.NumTokens == 0 {
		f.query.NumTokens = int64(len(tokens))
	}
	query := &api.HoldersQuery{Model: f.query.Model, Tenant: f.query.Tenant}
	answer, err = ask(cmd.Context(), t, func(ctx context.Context, c *client.Client) (*api.HoldersAnswer, error) {
		return c.Holders(ctx, query, coordinator.Hashes{})
	})
	if err != nil {
		return nil, err
	}
	hashes, err := f.hashTokens(cmd, tokens, answer.BlockSize)
	if err != nil {
		return nil, err
	}
	return ask(cmd.Context(), t, func(ctx context.Context, c *client.Client) (*api.HoldersAnswer, error) {
		return c.Holders(ctx, &f.query, hashes)
	})
}

// hashTokens returns the hashes of the whole blocks of a prompt, those of SGLang as events have them.
func (f *holdersFlags) hashTokens(cmd *cobra.Command, tokens []int64, blockSize int) (coordinator.Hashes, error) {
	if blockSize <= 0 {
		return coordinator.Hashes{}, fmt.Errorf("%w: blocks of %d tokens", client.ErrReply, blockSize)
	}
	if cmd.Flags().Changed("block-size") && f.hash.blockSize != blockSize {
		return coordinator.Hashes{}, usagef("--block-size is %d, and the blocks of the model have %d tokens", f.hash.blockSize, blockSize)
	}
	f.hash.blockSize = blockSize
	h, err := f.hash.hasherOf(cmd)
	if err != nil {
		return coordinator.Hashes{}, err
	}
	blob, err := h.hashes(tokens)
	switch {
	case err != nil, len(blob) == 0:
		return coordinator.Hashes{}, err
	case f.hash.engine == engineVLLM:
		return coordinator.NewHashes(blob, h.hashLen), nil
	}
	var short []byte
	for hash := range slices.Chunk(blob, h.hashLen) {
		short = binary.BigEndian.AppendUint64(short, h.short(hash))
	}
	return coordinator.NewHashes(short, 8), nil
}

// commonMedia are those that engines name, from the nearest; other media follow them by name.
var commonMedia = []string{"GPU", "CPU", "CPU_PINNED", "DISK", "STORAGE", "EXTERNAL"}

// mediaOf returns the media of an answer in the order of its columns: predictions are the last.
func mediaOf(answer *api.HoldersAnswer) []string {
	seen := map[string]bool{}
	for i := range answer.Holders {
		for medium := range answer.Holders[i].Media {
			seen[medium] = true
		}
	}
	position := func(medium string) int {
		if medium == fleet.Predicted {
			return len(commonMedia) + 1
		}
		if i := slices.Index(commonMedia, medium); i >= 0 {
			return i
		}
		return len(commonMedia)
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b string) int {
		return cmp.Or(cmp.Compare(position(a), position(b)), strings.Compare(a, b))
	})
}

// formatHolders writes an answer as a table. numTokens is the length of the prompt, -1 if that is not known.
func formatHolders(answer *api.HoldersAnswer, numTokens int) string {
	var b strings.Builder
	switch {
	case numTokens >= 0 && numTokens < answer.BlockSize:
		fmt.Fprintf(&b, "the prompt has %d tokens, fewer than a block of %d: nothing to ask for\n", numTokens, answer.BlockSize)
	case len(answer.Holders) == 0:
		fmt.Fprintf(&b, "no engine has the first block, of %d tokens; GET /services tells whose events are followed\n", answer.BlockSize)
	default:
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		media := mediaOf(answer)
		fmt.Fprint(w, "instance\trank\ttokens")
		for _, medium := range media {
			fmt.Fprintf(w, "\t%s", cli.Printable(medium))
		}
		fmt.Fprintln(w)
		for i := range answer.Holders {
			h := &answer.Holders[i]
			fmt.Fprintf(w, "%s\t%d\t%d", cli.Printable(h.Instance), h.Rank, h.Tokens)
			for _, medium := range media {
				fmt.Fprintf(w, "\t%d", h.Media[medium])
			}
			fmt.Fprintln(w)
		}
		_ = w.Flush() // a Builder never fails
	}
	if answer.LeftOut > 0 {
		fmt.Fprintf(&b, "and %d more\n", answer.LeftOut)
	}
	if answer.LoadableTokens != nil {
		fmt.Fprintf(&b, "the store can load %d tokens\n", *answer.LoadableTokens)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
