package coordinator

import (
	"fmt"
	"slices"

	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/netproto"
)

// Group configures one KV cache group: a set of layers with one spec. Sizes are in tokens.
type Group struct {
	Kind      Kind `json:"kind" yaml:"kind"`
	BlockSize int  `json:"block_size" yaml:"block_size"` // a multiple of the pool's hash block size; with the factor of decode-context parallelism

	// SlidingWindow is required by the sliding window kinds and allowed for the
	// full-attention family, where it only makes specs unequal.
	SlidingWindow int `json:"sliding_window,omitempty" yaml:"sliding_window,omitempty"`
	// AttentionChunkSize is required by chunked local attention and otherwise as
	// SlidingWindow.
	AttentionChunkSize int `json:"attention_chunk_size,omitempty" yaml:"attention_chunk_size,omitempty"`
	// MambaCacheMode is "none" (the same as ""), "align" or "all", for mamba only.
	MambaCacheMode string `json:"mamba_cache_mode,omitempty" yaml:"mamba_cache_mode,omitempty"`
	// Variant distinguishes specs that differ in something else, such as the head size.
	Variant int `json:"variant,omitempty" yaml:"variant,omitempty"`
	// Uniform marks a uniform-type wrapper around the spec. From 0.30.0 on its blocks cannot
	// be shared between tensor-parallel sizes.
	Uniform bool `json:"uniform,omitempty" yaml:"uniform,omitempty"`
	// IsEagleGroup marks a group of the draft model, which drops its last block. It is
	// not part of the spec, and counts even without Pool.UseEagle.
	IsEagleGroup bool `json:"is_eagle_group,omitempty" yaml:"is_eagle_group,omitempty"`
	// ExtraRetainedTokens are kept with a sliding window. From 0.33.0 on they are part
	// of the window. Before, they only make specs unequal.
	ExtraRetainedTokens int `json:"extra_retained_tokens,omitempty" yaml:"extra_retained_tokens,omitempty"`
	// RSWAWindow is for rswa only, and only makes specs unequal.
	RSWAWindow int `json:"rswa_window,omitempty" yaml:"rswa_window,omitempty"`
	// BoundedReplay makes a sliding_window_mla group scratch memory, from 0.30.0 on.
	BoundedReplay bool `json:"bounded_replay,omitempty" yaml:"bounded_replay,omitempty"`
	// EnableKVTransfer, if false, takes the group out of the store, from 0.29.0 on. nil
	// is true.
	EnableKVTransfer *bool `json:"enable_kv_transfer,omitempty" yaml:"enable_kv_transfer,omitempty"`
}

// Pool configures a coordinator as the engine is configured whose blocks are looked up.
// Sizes are in tokens unless noted. The zero value of a field means its default.
type Pool struct {
	ModelName   string `json:"model_name,omitempty" yaml:"model_name,omitempty"` // keys use what follows its last slash
	CachePrefix string `json:"cache_prefix,omitempty" yaml:"cache_prefix,omitempty"`

	// Layout says whose keys the store has: "" for vLLM's, or LayoutLMDeploy.
	Layout string `json:"layout,omitempty" yaml:"layout,omitempty"`

	HashBlockSize      int  `json:"hash_block_size" yaml:"hash_block_size"`           // 0: DefaultHashBlockSize
	SchedulerBlockSize int  `json:"scheduler_block_size" yaml:"scheduler_block_size"` // 0: lcm of all block sizes
	UseEagle           bool `json:"use_eagle,omitempty" yaml:"use_eagle,omitempty"`   // with no group flagged, all are
	// RetentionInterval, in tokens, thins store masks out. nil keeps the chunks before
	// the end of every scheduler block, a positive number those before its multiples,
	// and 0 only those that a replay of the prompt needs.
	RetentionInterval *int `json:"retention_interval,omitempty" yaml:"retention_interval,omitempty"`

	// The numbers of ranks (0: 1), and the ranks of the worker that looks up. Up to 0.24.0
	// PCPRank and DCPRank count, from 0.25.0 on PCPSize and DCPSize.
	TPSize  int `json:"tp_size,omitempty" yaml:"tp_size,omitempty"`
	PPSize  int `json:"pp_size,omitempty" yaml:"pp_size,omitempty"`
	PCPSize int `json:"pcp_size,omitempty" yaml:"pcp_size,omitempty"`
	DCPSize int `json:"dcp_size,omitempty" yaml:"dcp_size,omitempty"`
	PCPRank int `json:"pcp_rank,omitempty" yaml:"pcp_rank,omitempty"`
	DCPRank int `json:"dcp_rank,omitempty" yaml:"dcp_rank,omitempty"`
	// NumKVHead is the number of KV heads (0: TPSize, so that every rank holds blocks
	// of its own). MLA models have 1.
	NumKVHead int `json:"num_kv_head,omitempty" yaml:"num_kv_head,omitempty"`

	// CacheHitAlignmentTokens is the engine's cache_hit_alignment_tokens, 0 for none: hits
	// may end inside a block if it is below the scheduler block size. From 0.32.0 on.
	CacheHitAlignmentTokens int `json:"cache_hit_alignment_tokens,omitempty" yaml:"cache_hit_alignment_tokens,omitempty"`
	// HashLen is the length of the engine's block hashes in bytes, 0 if it is not known.
	// Lookups with hashes of another length are refused.
	HashLen int `json:"hash_len,omitempty" yaml:"hash_len,omitempty"`
	// CapacityOnly is set for workers that never look up: the answer is 0.
	CapacityOnly bool `json:"capacity_only,omitempty" yaml:"capacity_only,omitempty"`

	// The options of the connector by which engines of different tensor-parallel sizes
	// share a store, from 0.30.0 on. A size below 1 is one that vLLM ignores.
	StoreTPSize             *int   `json:"store_tp_size,omitempty" yaml:"store_tp_size,omitempty"`
	EnableStoreTPLCM        bool   `json:"enable_store_tp_lcm,omitempty" yaml:"enable_store_tp_lcm,omitempty"`
	PrefillTPSizes          []int  `json:"prefill_tp_sizes,omitempty" yaml:"prefill_tp_sizes,omitempty"`
	EnableCrossLayersBlocks bool   `json:"enable_cross_layers_blocks,omitempty" yaml:"enable_cross_layers_blocks,omitempty"`
	KVCacheLayout           string `json:"kv_cache_layout,omitempty" yaml:"kv_cache_layout,omitempty"` // "": LBHNC

	// VLLM is the engine's release, for example "0.33.0". "" stands for lookups as in 0.24.0.
	// A release that is not known is refused.
	VLLM   string  `json:"vllm,omitempty" yaml:"vllm,omitempty"`
	Groups []Group `json:"groups" yaml:"groups"` // in the engine's order, all of them; none: one FullAttention of HashBlockSize
}

// DefaultHashBlockSize is the engine's usual block size in tokens.
const DefaultHashBlockSize = 16

// Limits of a configuration. They are far above what engines use, and keep every product
// of configured numbers within 64 bits.
const (
	maxTokens     = 1<<31 - 1 // tokens of any size
	maxGroups     = 1 << 16   // the wire writes group numbers in 16 bits
	maxRanks      = 1 << 14   // ranks that may hold one block
	maxGroupRanks = 1 << 20   // groups times ranks: each takes a key prefix in memory
)

// withDefaults returns a deep copy of p with every default filled in.
func (p Pool) withDefaults() Pool {
	fill := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	fill(&p.HashBlockSize, DefaultHashBlockSize)
	for _, size := range []*int{&p.TPSize, &p.PPSize, &p.PCPSize, &p.DCPSize} {
		fill(size, 1)
	}
	fill(&p.NumKVHead, p.TPSize)
	p.Groups = slices.Clone(p.Groups)
	if len(p.Groups) == 0 {
		p.Groups = []Group{{Kind: FullAttention, BlockSize: p.HashBlockSize}}
	}
	for g := range p.Groups {
		if transfer := p.Groups[g].EnableKVTransfer; transfer != nil {
			p.Groups[g].EnableKVTransfer = new(*transfer)
		}
	}
	p.PrefillTPSizes = slices.Clone(p.PrefillTPSizes)
	for _, number := range []**int{&p.RetentionInterval, &p.StoreTPSize} {
		if *number != nil {
			*number = new(**number)
		}
	}
	return p
}

// validate checks p and sets the default of its scheduler block size; the others are set.
// The three checks of the reference come last and in its order.
func (p *Pool) validate() error {
	if err := p.validateNumbers(); err != nil {
		return err
	}
	if len(p.Groups) > maxGroups {
		return invalid([]string{"groups"}, "%d groups, at most %d are possible", len(p.Groups), maxGroups)
	}
	for g := range p.Groups {
		if err := p.Groups[g].validate(); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalidPool, fielderror.Below(groupPath(g), err))
		}
	}
	if p.CapacityOnly {
		return p.validateCapacityOnly()
	}
	if len(p.storeGroups()) == 0 {
		return invalid([]string{"groups"}, "no group is kept in the store")
	}
	for _, g := range p.storeGroups() {
		if group := p.Groups[g]; group.BlockSize%p.HashBlockSize != 0 {
			return refused([]string{groupPath(g) + ".block_size", "hash_block_size"},
				"block_size %d is not a multiple of hash_block_size %d", group.BlockSize, p.HashBlockSize)
		}
	}
	return p.validateSchedulerBlock()
}

// validateNumbers checks the numbers outside the groups, each by itself and their
// products.
func (p *Pool) validateNumbers() error {
	for _, field := range []struct {
		name       string
		value      int
		least, max int
	}{
		{"hash_block_size", p.HashBlockSize, 1, maxTokens},
		{"scheduler_block_size", p.SchedulerBlockSize, 0, maxTokens},
		{"tp_size", p.TPSize, 1, maxRanks},
		{"pp_size", p.PPSize, 1, maxRanks},
		{"pcp_size", p.PCPSize, 1, maxRanks},
		{"dcp_size", p.DCPSize, 1, maxRanks},
		{"pcp_rank", p.PCPRank, 0, maxRanks - 1},
		{"dcp_rank", p.DCPRank, 0, maxRanks - 1},
		{"num_kv_head", p.NumKVHead, 1, maxTokens},
		{"hash_len", p.HashLen, 0, netproto.MaxHashLen},
		{"cache_hit_alignment_tokens", p.CacheHitAlignmentTokens, 0, maxTokens},
	} {
		if field.value < field.least || field.value > field.max {
			return invalid([]string{field.name}, "%s is %d, want %d to %d", field.name, field.value, field.least, field.max)
		}
	}
	sizes := []string{"tp_size", "pp_size", "pcp_size"}
	ranks := int64(p.TPSize) * int64(p.PPSize) * int64(p.PCPSize)
	if ranks > maxRanks {
		return invalid(sizes, "tp_size * pp_size * pcp_size is %d, at most %d ranks are possible", ranks, maxRanks)
	}
	if ranks *= int64(len(p.Groups)); ranks > maxGroupRanks {
		return invalid(append(sizes, "groups"), "%d groups times tp_size * pp_size * pcp_size ranks is %d, at most %d are possible",
			len(p.Groups), ranks, maxGroupRanks)
	}
	for _, check := range []func() error{p.validateRelease, p.validateFields, p.validateLayout, p.validateSharing} {
		if err := check(); err != nil {
			return err
		}
	}
	return p.validateRetention()
}

// validateRetention checks the retention interval.
func (p *Pool) validateRetention() error {
	if r := p.RetentionInterval; r != nil {
		if *r < 0 || *r > maxTokens {
			return invalid([]string{"retention_interval"}, "retention_interval is %d, want 0 to %d, or none", *r, maxTokens)
		}
	}
	return nil
}

// validateRelease checks that VLLM is known.
func (p *Pool) validateRelease() error {
	if p.VLLM == "" {
		return nil
	}
	if _, err := findRelease(p.VLLM); err != nil {
		return invalid([]string{"vllm"}, "%w", err)
	}
	return nil
}

// storeGroups returns the groups whose blocks are kept in the store, by their position in
// Groups.
func (p *Pool) storeGroups() []int {
	rules := &p.release().rules
	var kept []int
	for g := range p.Groups {
		group := &p.Groups[g]
		switch {
		case rules.dropsUntransferred && group.EnableKVTransfer != nil && !*group.EnableKVTransfer:
		case rules.dropsScratch && (group.Kind.scratch() || group.BoundedReplay):
		default:
			kept = append(kept, g)
		}
	}
	return kept
}

// validateCapacityOnly checks a pool that is never looked up. The engine does not check the
// sizes of its groups.
func (p *Pool) validateCapacityOnly() error {
	if p.SchedulerBlockSize == 0 {
		p.SchedulerBlockSize = p.HashBlockSize
	}
	return nil
}

// validateSchedulerBlock sets the default of the scheduler block size and checks it.
func (p *Pool) validateSchedulerBlock() error {
	if p.SchedulerBlockSize == 0 {
		common := int64(p.HashBlockSize)
		for _, group := range p.Groups {
			block := int64(group.BlockSize)
			common = lcm(common, block)
			if common > maxTokens {
				return invalid([]string{"groups"}, "the block sizes have no common multiple up to %d, choose sizes that divide each other", maxTokens)
			}
		}
		p.SchedulerBlockSize = int(common)
	}
	if p.SchedulerBlockSize%p.HashBlockSize != 0 {
		return refused([]string{"scheduler_block_size", "hash_block_size"},
			"scheduler_block_size %d is not a multiple of hash_block_size %d", p.SchedulerBlockSize, p.HashBlockSize)
	}
	if hits := p.CacheHitAlignmentTokens; hits != 0 && hits != p.HashBlockSize && hits != p.SchedulerBlockSize {
		return invalid([]string{"cache_hit_alignment_tokens", "hash_block_size", "scheduler_block_size"},
			"cache_hit_alignment_tokens is %d, engines have hash_block_size (%d) or scheduler_block_size (%d)", hits, p.HashBlockSize, p.SchedulerBlockSize)
	}
	for _, g := range p.storeGroups() {
		if group := p.Groups[g]; p.SchedulerBlockSize%group.BlockSize != 0 {
			return refused([]string{"scheduler_block_size", groupPath(g) + ".block_size"},
				"scheduler_block_size %d is not a multiple of block_size %d of groups[%d]", p.SchedulerBlockSize, group.BlockSize, g)
		}
	}
	return nil
}

// invalid is an ErrInvalidPool about fields of the pool.
func invalid(fields []string, format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalidPool, fielderror.New(fields, format, args...))
}

// refused is an invalid pool that the reference refuses, too.
func refused(fields []string, format string, args ...any) error {
	return fmt.Errorf("%w: %w: %w", ErrInvalidPool, ErrPrecondition, fielderror.New(fields, format, args...))
}

// groupPath returns the path of group g in the pool.
func groupPath(g int) string { return fmt.Sprintf("groups[%d]", g) }

// validate checks one group by itself.
func (g *Group) validate() error {
	switch {
	case g.Kind >= numKinds:
		return fielderror.New([]string{"kind"}, "unknown kind number %d", uint8(g.Kind))
	case g.BlockSize < 1 || g.BlockSize > maxTokens:
		return fielderror.New([]string{"block_size"}, "block_size is %d, want 1 to %d", g.BlockSize, maxTokens)
	case g.SlidingWindow < 0 || g.SlidingWindow > maxTokens:
		return fielderror.New([]string{"sliding_window"}, "sliding_window is %d, want 1 to %d", g.SlidingWindow, maxTokens)
	case g.Kind.IsWindow() && g.SlidingWindow == 0:
		return fielderror.New([]string{"sliding_window"}, "%s needs sliding_window", g.Kind)
	case g.SlidingWindow != 0 && !g.Kind.IsWindow() && !g.Kind.IsFull():
		return fielderror.New([]string{"sliding_window"}, "%s has no sliding_window, remove it", g.Kind)
	case g.AttentionChunkSize < 0 || g.AttentionChunkSize > maxTokens:
		return fielderror.New([]string{"attention_chunk_size"}, "attention_chunk_size is %d, want 1 to %d", g.AttentionChunkSize, maxTokens)
	case g.Kind == ChunkedLocalAttention && g.AttentionChunkSize == 0:
		return fielderror.New([]string{"attention_chunk_size"}, "%s needs attention_chunk_size", g.Kind)
	case g.AttentionChunkSize != 0 && g.Kind != ChunkedLocalAttention && !g.Kind.IsFull():
		return fielderror.New([]string{"attention_chunk_size"}, "%s has no attention_chunk_size, remove it", g.Kind)
	case !slices.Contains([]string{"", "none", "align", "all"}, g.MambaCacheMode):
		return fielderror.New([]string{"mamba_cache_mode"}, "mamba_cache_mode is %q, want none, align or all", g.MambaCacheMode)
	case g.ExtraRetainedTokens < 0 || g.ExtraRetainedTokens > maxTokens:
		return fielderror.New([]string{"extra_retained_tokens"}, "extra_retained_tokens is %d, want 0 to %d", g.ExtraRetainedTokens, maxTokens)
	case g.ExtraRetainedTokens != 0 && !g.Kind.IsWindow():
		return fielderror.New([]string{"extra_retained_tokens"}, "%s has no extra_retained_tokens, remove it", g.Kind)
	case g.RSWAWindow < 0 || g.RSWAWindow > maxTokens:
		return fielderror.New([]string{"rswa_window"}, "rswa_window is %d, want 0 to %d", g.RSWAWindow, maxTokens)
	case g.RSWAWindow != 0 && g.Kind != RSWA:
		return fielderror.New([]string{"rswa_window"}, "%s has no rswa_window, remove it", g.Kind)
	case g.BoundedReplay && g.Kind != SlidingWindowMLA:
		return fielderror.New([]string{"bounded_replay"}, "%s has no bounded_replay, remove it", g.Kind)
	case g.MambaCacheMode != "" && g.Kind != Mamba:
		return fielderror.New([]string{"mamba_cache_mode"}, "%s has no mamba_cache_mode, remove it", g.Kind)
	}
	return nil
}

// lcm returns the least common multiple of two positive numbers.
func lcm(a, b int64) int64 { return a / gcd(a, b) * b }

// gcd returns the greatest common divisor of two positive numbers.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
