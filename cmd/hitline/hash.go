package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/fielderror"
)

// Engines whose hashes the command hash knows.
const (
	engineVLLM   = "vllm"
	engineSGLang = "sglang"
)

var engines = []string{engineVLLM, engineSGLang}

// Block sizes of the engines if they are not configured, in tokens.
const (
	defaultVLLMBlock  = 16
	defaultSGLangPage = 1
)

// Flags of one engine, of which the other has no use.
var (
	vllmOnly   = []string{"vllm", "algorithm", "seed", "lookahead", "lora", "lora-path"}
	sglangOnly = []string{"bigrams", "dynamo"}
)

// hashOptions are the flags of the command hash.
type hashOptions struct {
	engine, file, release, algorithm, seed, lora, loraPath, salt string
	blockSize, lookahead                                         int
	bigrams, dynamo                                              bool
	short, integers, json                                        bool
}

// hashResult is what the command hash prints with --json.
type hashResult struct {
	Engine    string   `json:"engine"`
	Release   string   `json:"release,omitempty"`
	Algorithm string   `json:"algorithm,omitempty"`
	BlockSize int      `json:"block_size"`
	NumTokens int      `json:"num_tokens"`
	Hashes    []string `json:"hashes"`
}

// newHashCmd returns the command that computes block hashes.
func newHashCmd() *cobra.Command {
	var o hashOptions
	cmd := &cobra.Command{
		Use:   "hash",
		Short: "Compute the block hashes of a prompt from its token ids",
		Long: `hash reads the token ids of a prompt and prints the hash of each whole block in
hex, one a line, as the engine computes them. It asks no server. The ids are a
JSON array, an object such as {"token_ids": [1, 2]}, or numbers separated by
white space. The output is a hashes file for lookup, store and other commands.

Up to vLLM 0.28, and with xxhash and xxhash_cbor, an engine draws the seed of
its hashes at random unless PYTHONHASHSEED is set: give the same as --seed.`,
		Example: "  seq 64 | hitline hash | hitline lookup --tokens 64 --hashes-file -\n  hitline hash --engine sglang --block-size 64 --short --tokens-file ids.json",
		Args:    cli.NoArgs,
	}
	o.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		result, err := o.run(cmd)
		if err != nil {
			return err
		}
		if o.engine == engineVLLM && !cmd.Flags().Changed("vllm") && !o.json {
			fmt.Fprintf(cmd.ErrOrStderr(), "hitline: hashed as vLLM %s does, the default; --vllm names another release\n", o.release)
		}
		if len(result.Hashes) == 0 && !o.json {
			fmt.Fprintf(cmd.ErrOrStderr(), "hitline: no whole block of %d %s: there are %d\n", o.blockSize, plural(o.blockSize, "token"), result.NumTokens)
			return nil
		}
		return cli.PrintResult(cmd, o.json, result, strings.Join(result.Hashes, "\n"))
	}
	return cmd
}

// addFlags defines the flags of the command hash.
func (o *hashOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.file, "tokens-file", "-", "`file` with the token ids; - is standard input")
	cmd.Flags().BoolVar(&o.short, "short", false, "print 64 bits of each hash, in hex")
	cmd.Flags().BoolVar(&o.integers, "integers", false, "print 64 bits of each hash, as the decimal numbers of KV events; not with --short")
	cli.JSONFlag(cmd.Flags(), &o.json)
	o.addEngineFlags(cmd)
}

// addEngineFlags defines the flags that say how a prompt is hashed.
func (o *hashOptions) addEngineFlags(cmd *cobra.Command) {
	cli.FlagGroup(cmd.Flags(), "Hashing", func(flags *pflag.FlagSet) {
		flags.StringVar(&o.engine, "engine", engineVLLM, "`name` of the engine that hashes: "+strings.Join(engines, " or "))
		flags.StringVar(&o.release, "vllm", coordinator.NewestRelease(), "`release` of vLLM")
		flags.StringVar(&o.algorithm, "algorithm", string(blockhash.SHA256), "vLLM's hash `algorithm`: "+strings.Join(blockhash.Algorithms(), ", "))
		flags.StringVar(&o.seed, "seed", "", "PYTHONHASHSEED of the engine: any `text`")
		flags.IntVar(&o.blockSize, "block-size", 0, "`tokens` of a block (default 16 for vLLM, 1 for SGLang)")
		flags.IntVar(&o.lookahead, "lookahead", 0, "`tokens` after a block that its hash covers (0.33.0 on)")
		flags.StringVar(&o.lora, "lora", "", "`name` of the request's LoRA adapter (default none)")
		flags.StringVar(&o.loraPath, "lora-path", "", "`path` of the adapter (vLLM 0.31.0 on)")
		flags.BoolVar(&o.bigrams, "bigrams", false, "hash pairs of tokens, as SGLang does with EAGLE")
		flags.BoolVar(&o.dynamo, "dynamo", false, "hash as for SGLang's events in the format dynamo")
		flags.StringVar(&o.salt, "salt", "", "the request's cache salt, any `text` (default none)")
	})
	cli.Complete(cmd, "engine", engines...)
	cli.Complete(cmd, "vllm", coordinator.Releases()...)
	cli.Complete(cmd, "algorithm", blockhash.Algorithms()...)
}

// run reads the tokens and returns their hashes.
func (o *hashOptions) run(cmd *cobra.Command) (hashResult, error) {
	h, err := o.newHasher(cmd)
	if err != nil {
		return hashResult{}, err
	}
	tokens, err := o.loadTokens(cmd)
	if err != nil {
		return hashResult{}, err
	}
	blob, err := h.hashes(tokens)
	if err != nil {
		return hashResult{}, err
	}
	result := hashResult{Engine: o.engine, BlockSize: o.blockSize, NumTokens: len(tokens), Hashes: []string{}}
	if o.engine == engineVLLM {
		result.Release, result.Algorithm = o.release, o.algorithm
	}
	for hash := range slices.Chunk(blob, h.hashLen) {
		result.Hashes = append(result.Hashes, o.format(&h, hash))
	}
	return result, nil
}

// format returns the text of a hash.
func (o *hashOptions) format(h *promptHasher, hash []byte) string {
	switch {
	case o.integers && o.engine == engineSGLang:
		return strconv.FormatInt(int64(h.short(hash)), 10) //nolint:gosec // the same 64 bits
	case o.integers:
		return strconv.FormatUint(h.short(hash), 10)
	case o.short:
		return fmt.Sprintf("%016x", h.short(hash))
	}
	return hex.EncodeToString(hash)
}

// promptHasher hashes prompts as an engine does.
type promptHasher struct {
	hashLen int                                  // of one hash in bytes
	hashes  func(tokens []int64) ([]byte, error) // returns the hashes of the whole blocks, joined
	short   func(hash []byte) uint64             // returns the 64 bits that KV events have of a hash
}

// newHasher returns the hasher that the flags describe. It sets blockSize to its default if its flag is not given.
func (o *hashOptions) newHasher(cmd *cobra.Command) (promptHasher, error) {
	switch {
	case !slices.Contains(engines, o.engine):
		return promptHasher{}, usagef("--engine is %q, must be %s", o.engine, strings.Join(engines, " or "))
	case o.short && o.integers:
		return promptHasher{}, usagef("--short and --integers: give one of them")
	case cmd.Flags().Changed("block-size"):
		// Also 0 is the user's choice then, and refused.
	case o.engine == engineSGLang:
		o.blockSize = defaultSGLangPage
	default:
		o.blockSize = defaultVLLMBlock
	}
	if o.engine == engineSGLang {
		return o.newSGLang(cmd)
	}
	return o.newVLLM(cmd)
}

// refuseFlags refuses flags that are of use for another engine alone.
func refuseFlags(cmd *cobra.Command, names []string, engine string) error {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is for %s alone", name, engine)
		}
	}
	return nil
}

// newVLLM returns vLLM's hasher.
func (o *hashOptions) newVLLM(cmd *cobra.Command) (promptHasher, error) {
	if err := refuseFlags(cmd, sglangOnly, "SGLang"); err != nil {
		return promptHasher{}, err
	}
	c := blockhash.VLLMConfig{
		Release: o.release, Algorithm: blockhash.Algorithm(o.algorithm), BlockSize: o.blockSize, Lookahead: o.lookahead,
	}
	if cmd.Flags().Changed("seed") {
		c.Seed = &o.seed
	}
	keys := &blockhash.ExtraKeys{Salt: o.salt}
	if cmd.Flags().Changed("lora") {
		keys.LoRA = &blockhash.LoRA{Name: o.lora, Path: o.loraPath}
	}
	h, err := blockhash.NewVLLM(c)
	switch {
	case errors.Is(err, blockhash.ErrRandomSeed):
		return promptHasher{}, usagef("vLLM %s with %s draws the seed of its hashes at random; set PYTHONHASHSEED in the engine, and give it as --seed", o.release, o.algorithm)
	case err != nil:
		return promptHasher{}, usagef("%w", withoutField(err))
	case cmd.Flags().Changed("lora-path") && keys.LoRA == nil:
		return promptHasher{}, usagef("--lora-path needs --lora")
	case keys.LoRA != nil && h.UsesLoRAPath() && !cmd.Flags().Changed("lora-path"):
		return promptHasher{}, usagef("--lora needs --lora-path with vLLM %s: its hashes depend on both", o.release)
	}
	return promptHasher{h.HashLen(), func(tokens []int64) ([]byte, error) {
		blob, err := h.AppendHashes(nil, tokens, keys)
		if err != nil {
			return nil, usagef("%w", err)
		}
		return blob, nil
	}, blockhash.ShortHash}, nil
}

// newSGLang returns SGLang's hasher, as for its events.
func (o *hashOptions) newSGLang(cmd *cobra.Command) (promptHasher, error) {
	if err := refuseFlags(cmd, vllmOnly, "vLLM"); err != nil {
		return promptHasher{}, err
	}
	h, err := blockhash.NewSGLang(blockhash.SGLangConfig{
		PageSize: o.blockSize, Bigrams: o.bigrams, Namespace: blockhash.Namespace{Salt: o.salt, Dynamo: o.dynamo},
	})
	if err != nil {
		return promptHasher{}, usagef("%w", err)
	}
	return promptHasher{blockhash.DigestLen, func(tokens []int64) ([]byte, error) {
		blob, err := h.AppendHashes(nil, tokens)
		if err != nil {
			return nil, configError(err)
		}
		return blob, nil
	}, h.ShortHash}, nil
}

// withoutField returns an error without the field that it names: the command has flags for them.
func withoutField(err error) error {
	if e, ok := errors.AsType[*fielderror.Error](err); ok {
		return e.Err
	}
	return err
}

// maxTokensFile bounds a file of token ids in bytes: 10 million ids or more.
const maxTokensFile = 128 << 20

// loadTokens reads the file that --tokens-file names.
func (o *hashOptions) loadTokens(cmd *cobra.Command) ([]int64, error) {
	in, name, err := openInput(cmd, o.file, "token ids")
	if err != nil {
		return nil, err
	}
	defer in.Close() // read only: Close cannot lose data
	text, err := io.ReadAll(io.LimitReader(in, maxTokensFile+1))
	switch {
	case err != nil:
		return nil, configError(fmt.Errorf("cannot read the token ids: %s: %w", name, err))
	case len(text) > maxTokensFile:
		return nil, configError(fmt.Errorf("%s: more than %d MiB of token ids", name, maxTokensFile>>20))
	}
	tokens, err := parseTokens(text)
	if i := slices.IndexFunc(tokens, func(id int64) bool { return id < 0 }); err == nil && i >= 0 {
		err = fmt.Errorf("%d at position %d is no token id; ids are 0 or more", tokens[i], i)
	}
	if err != nil {
		return nil, configError(fmt.Errorf("%s: %w", name, err))
	}
	return tokens, nil
}

// parseTokens reads a JSON array of token ids, an object that has one, or ids separated by white space.
func parseTokens(text []byte) (tokens []int64, err error) {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte(byteOrderMark)))
	if bytes.HasPrefix(text, []byte("{")) {
		if text, err = tokensOfBody(text); err != nil {
			return nil, err
		}
	}
	if bytes.HasPrefix(text, []byte("[")) {
		if err := json.Unmarshal(text, &tokens); err != nil {
			if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
				return nil, fmt.Errorf("not a JSON array of token ids: byte %d ends a %s; write whole numbers, such as [1, 2]", wrong.Offset, wrong.Value)
			}
			return nil, fmt.Errorf("not a JSON array of token ids: %w", err)
		}
		if bytes.Contains(text, []byte("null")) { // json reads it as 0
			return nil, errors.New("not a JSON array of token ids: null is in it")
		}
		return tokens, nil
	}
	if len(text) == 0 {
		return nil, errors.New("is empty; give token ids, as a JSON array or with white space between them")
	}
	for word := range bytes.FieldsSeq(text) {
		id, err := strconv.ParseInt(string(word), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%.40q is no token id", word)
		}
		tokens = append(tokens, id)
	}
	return tokens, nil
}

// hashedFields are those of the body of a query that change the hashes of its token ids.
var hashedFields = []string{"block_size", "lora_name", "lora_path", "cache_salt"}

// tokensOfBody returns token_ids of a JSON object, such as the body of a query.
func tokensOfBody(text []byte) ([]byte, error) {
	var body map[string]json.RawMessage
	if err := json.Unmarshal(text, &body); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	for _, name := range hashedFields {
		if _, ok := body[name]; ok {
			return nil, fmt.Errorf("%s is not read from a file; leave it out, and give it as a flag: see --help", name)
		}
	}
	ids := bytes.TrimSpace(body["token_ids"])
	if !bytes.HasPrefix(ids, []byte("[")) {
		return nil, errors.New(`a JSON object without token_ids; write {"token_ids": [1, 2]}, or the ids alone`)
	}
	return ids, nil
}
