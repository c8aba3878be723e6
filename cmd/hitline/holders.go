package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/internal/printable"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// holdersQuery is the body of POST /query and POST /query_by_hash: see router/httpapi/openapi.yaml.
type holdersQuery struct {
	Model     string   `json:"model,omitempty"`
	Tenant    string   `json:"tenant_id,omitempty"`
	Engine    string   `json:"instance_id,omitempty"`
	Loadable  bool     `json:"loadable,omitempty"`
	NumTokens int64    `json:"num_tokens,omitempty"`
	LastKnown bool     `json:"last_known,omitempty"`
	Hashes    []string `json:"seq_hashes,omitzero"` // in hex
	Tokens    []int64  `json:"token_ids,omitzero"`
	LoRA      string   `json:"lora_name,omitempty"`
	LoRAPath  string   `json:"lora_path,omitempty"`
	Salt      string   `json:"cache_salt,omitempty"`
}

// holdersFlags are the flags of the command holders that say what is asked.
type holdersFlags struct {
	query                  holdersQuery
	hashesFile, tokensFile string
}

// newHoldersCmd returns the command that asks which engines have most of a prompt.
func newHoldersCmd() *cobra.Command {
	var t target
	var f holdersFlags
	cmd := &cobra.Command{
		Use:   "holders (--hashes-file FILE | --tokens-file FILE)",
		Short: "Ask which engines have most of a prompt",
		Long: `holders asks a server that follows the KV events of engines, at router.listen,
which of them have most of a prompt. It prints a line for each, the longest
prefix first: its tokens, those in each medium, and those of each rank.

Give the hashes of the prompt's whole blocks, or its token ids if router.models
has the engines' hash. With --loadable it also prints how many leading tokens
the shared store can load. "unsure" names engines that may have other blocks
than that: stale ones cannot be reached.`,
		Example: "  hitline holders --hashes-file prompt.hex\n  seq 64 | hitline holders --model llama --tokens-file - --loadable",
		Args:    cli.NoArgs,
	}
	f.add(cmd)
	t.addHTTPFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		reply, err := f.ask(cmd, &t)
		if err != nil {
			return err
		}
		answer, err := parseHolders(reply)
		if err != nil {
			return cli.WithClass(fmt.Errorf("%s: bad reply: %w", t.connect, err), client.ErrReply)
		}
		if f.tokensFile != "" && answer.isUnsure(string(router.HashesDiffer)) {
			f.warnDiffering(cmd.Context(), &t)
		}
		if slices.Contains(answer.unsure[f.query.Engine], "unknown") {
			t.warn(fmt.Sprintf("the server follows no engine %q; GET /services lists them", f.query.Engine))
		}
		return cli.PrintResult(cmd, t.json, json.RawMessage(reply), answer.String())
	}
	return cmd
}

// add defines the flags.
func (f *holdersFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.query.Model, "model", "", "`name` of the model (default the only one)")
	flags.StringVar(&f.query.Tenant, "tenant", "", "`name` of its tenant (default \"default\")")
	flags.StringVar(&f.query.Engine, "engine", "", "ask about the engine of this `name` alone")
	flags.BoolVar(&f.query.LastKnown, "last-known", false, "count what stale engines had last, too")
	flags.BoolVar(&f.query.Loadable, "loadable", false, "ask the shared store, too")
	flags.Int64Var(&f.query.NumTokens, "tokens", 0, "length of the prompt in `tokens`, for --loadable")
	flags.StringVar(&f.hashesFile, "hashes-file", "", "`file` with one hash in hex a line; - is standard input")
	flags.StringVar(&f.tokensFile, "tokens-file", "", "`file` with the token ids; - is standard input")
	flags.StringVar(&f.query.LoRA, "lora", "", "`name` of the LoRA adapter, for --tokens-file")
	flags.StringVar(&f.query.LoRAPath, "lora-path", "", "`path` of the adapter (vLLM 0.31.0 on)")
	flags.StringVar(&f.query.Salt, "salt", "", "the request's cache salt, any `text`, for --tokens-file")
}

// check returns an error for flags that contradict each other.
func (f *holdersFlags) check(cmd *cobra.Command) error {
	switch {
	case f.hashesFile == "" && f.tokensFile == "":
		return usagef("--hashes-file or --tokens-file is required")
	case f.hashesFile != "" && f.tokensFile != "":
		return usagef("--hashes-file and --tokens-file: give one of them")
	case f.query.NumTokens < 0:
		return usagef("--tokens %d is negative", f.query.NumTokens)
	case f.query.LoRAPath != "" && f.query.LoRA == "":
		return usagef("--lora-path needs --lora")
	case cmd.Flags().Changed("tokens") && (!f.query.Loadable || f.hashesFile == ""):
		return usagef("--tokens is of no use without --loadable and --hashes-file")
	case f.tokensFile != "":
		return nil
	}
	for _, name := range []string{"lora", "lora-path", "salt"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is of no use without --tokens-file", name)
		}
	}
	return nil
}

// ask reads the prompt and sends the query. It returns the server's answer.
func (f *holdersFlags) ask(cmd *cobra.Command, t *target) (reply []byte, err error) {
	if err := t.checkHTTP(); err != nil {
		return nil, err
	}
	if err := f.check(cmd); err != nil {
		return nil, err
	}
	if f.tokensFile != "" {
		if f.query.Tokens, err = (&hashOptions{file: f.tokensFile}).loadTokens(cmd); err != nil {
			return nil, err
		}
		if f.query.Tokens == nil {
			f.query.Tokens = []int64{} // the field is required
		}
		return t.askHTTP(cmd.Context(), "/query", &f.query)
	}
	list, err := loadHashes(cmd, f.hashesFile)
	if err != nil {
		return nil, err
	}
	f.query.Hashes = []string{}
	for hash := range slices.Chunk(list.blob, max(list.hashLen, 1)) {
		f.query.Hashes = append(f.query.Hashes, hex.EncodeToString(hash))
	}
	return t.askHTTP(cmd.Context(), "/query_by_hash", &f.query)
}

// warnDiffering warns if no engine of the model is known to hash token ids as the server does.
func (f *holdersFlags) warnDiffering(ctx context.Context, t *target) {
	var services struct {
		Models []struct {
			router.ModelKey
			HashesDiffer bool `json:"hashes_differ"`
		}
		Sources []struct {
			router.ModelKey
			Hashes router.Agreement
			Reason string `json:"hashes_reason"`
		}
	}
	reply, err := t.askHTTP(ctx, "/services", nil)
	if err == nil {
		err = json.Unmarshal(reply, &services)
	}
	if err != nil {
		t.warn(fmt.Sprintf("GET /services does not say why hashes differ: %v", err))
		return
	}
	for _, m := range services.Models {
		if !m.HashesDiffer || m.Tenant != cmp.Or(f.query.Tenant, router.DefaultTenant) || f.query.Model != "" && m.Name != f.query.Model {
			continue
		}
		for _, s := range services.Sources {
			if s.ModelKey == m.ModelKey && s.Hashes == router.HashesDiffer {
				t.warn(fmt.Sprintf("no engine of model %q is known to hash token ids as its hash says: %s", m.Name, s.Reason))
				break
			}
		}
	}
}

// holdersAnswer is the answer to a query, the longest prefix first.
type holdersAnswer struct {
	engines  []engineHeld
	loadable *int64 // tokens; nil if that was not asked, or is unknown
	unknown  string // why it is unknown
	unsure   map[string][]string
}

// engineHeld is what one engine has of a prompt, in tokens.
type engineHeld struct {
	name    string
	longest int64
	ranks   map[int]int64
	media   map[string]int64
}

// parseHolders reads an answer.
func parseHolders(reply []byte) (a holdersAnswer, err error) {
	var top struct {
		Instances map[string]struct {
			Longest        int64 `json:"longest_matched"`
			GPU, CPU, Disk int64
			DP             map[int]int64
			Media          map[string]int64
		}
		Loadable *int64 `json:"loadable_tokens"`
		Unknown  string `json:"loadable_unknown"`
		Unsure   map[string][]string
	}
	if err := json.Unmarshal(reply, &top); err != nil || top.Instances == nil {
		return a, errors.New("not an answer of /query")
	}
	a.loadable, a.unknown, a.unsure = top.Loadable, top.Unknown, top.Unsure
	for name, e := range top.Instances {
		media := map[string]int64{"GPU": e.GPU, "CPU": e.CPU, "DISK": e.Disk}
		maps.Copy(media, e.Media)
		a.engines = append(a.engines, engineHeld{name, e.Longest, e.DP, media})
	}
	slices.SortFunc(a.engines, func(a, b engineHeld) int {
		return cmp.Or(cmp.Compare(b.longest, a.longest), strings.Compare(a.name, b.name))
	})
	return a, nil
}

// isUnsure reports whether an engine is unsure for a reason.
func (a *holdersAnswer) isUnsure(reason string) bool {
	for _, reasons := range a.unsure {
		if slices.Contains(reasons, reason) {
			return true
		}
	}
	return false
}

// media returns the media in which an engine has blocks, by name. Predictions are the last.
func (a holdersAnswer) media() []string {
	seen := map[string]bool{}
	for _, e := range a.engines {
		for medium, tokens := range e.media {
			if tokens > 0 && medium != fleet.Predicted {
				seen[medium] = true
			}
		}
	}
	list := slices.Sorted(maps.Keys(seen))
	if slices.ContainsFunc(a.engines, func(e engineHeld) bool { return e.media[fleet.Predicted] > 0 }) {
		list = append(list, fleet.Predicted)
	}
	return list
}

// String returns the answer as a table.
func (a holdersAnswer) String() string {
	var b strings.Builder
	if len(a.engines) == 0 {
		b.WriteString("no engine has the first whole block; GET /services tells whose events are followed\n")
	} else {
		a.writeTable(&b)
	}
	if a.loadable != nil {
		fmt.Fprintf(&b, "the store can load %d tokens\n", *a.loadable)
	}
	if a.unknown != "" {
		fmt.Fprintf(&b, "what the store can load is unknown: %s\n", printable.Text(a.unknown))
	}
	var unsure []string
	for _, engine := range slices.Sorted(maps.Keys(a.unsure)) {
		unsure = append(unsure, fmt.Sprintf("%s (%s)", engine, strings.Join(a.unsure[engine], ", ")))
	}
	if len(unsure) > 0 {
		fmt.Fprintf(&b, "unsure: %s\n", printable.Text(strings.Join(unsure, ", ")))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// writeTable writes a line for each engine.
func (a holdersAnswer) writeTable(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	media := a.media()
	fmt.Fprint(w, "engine\ttokens")
	for _, medium := range media {
		fmt.Fprintf(w, "\t%s", printable.Text(medium))
	}
	fmt.Fprintln(w, "\tranks")
	for _, e := range a.engines {
		fmt.Fprintf(w, "%s\t%d", printable.Text(e.name), e.longest)
		for _, medium := range media {
			fmt.Fprintf(w, "\t%d", e.media[medium])
		}
		var ranks []string
		for _, rank := range slices.Sorted(maps.Keys(e.ranks)) {
			ranks = append(ranks, fmt.Sprintf("%d: %d", rank, e.ranks[rank]))
		}
		fmt.Fprintf(w, "\t%s\n", strings.Join(ranks, ", "))
	}
	_ = w.Flush() // a Builder never fails
}
