package coordinator

// rules are the points in which releases differ. The rest of the package is common to all. A new
// release is a row of releaseChanges, and a new field only for what is new in it.
type rules struct {
	// Of FindHit:

	// singleAlignsToBlock: the hit of a single attention group is aligned to its block
	// size instead of the scheduler's.
	singleAlignsToBlock bool
	// fullKeepsHit: in later passes a full-attention group limits the hit to its own
	// result. Otherwise it rounds the hit down to its block size.
	fullKeepsHit bool
	// mambaLookahead: an eagle mamba group looks one block past the current hit. It does
	// not drop a block, so the common hit can grow.
	mambaLookahead bool
	// trailingAbsent: in a group whose block is larger than the hash block, a chunk beyond the
	// hashes is absent instead of an error. No release has that, but vLLM 0c6631f02 of
	// 2026-06-04, whose answers were recorded.
	trailingAbsent bool
	// fineGrained says when hits may end inside a block.
	fineGrained fineGrainedRule
	// windowChunks: in fine-grained mode a sliding window works on whole chunks, whose
	// edges are all aligned. Otherwise its block must be the hash block.
	windowChunks bool
	// lookaheadToHashes: an eagle group may look a block past the tokens of the lookup, if the
	// request has its hash.
	lookaheadToHashes bool
	// cutsAllFull: the masks of all full-attention groups are cut to the hit instead of
	// only that of the first.
	cutsAllFull bool

	// Of groups:

	// dropsUntransferred: groups without KV transfer are no store groups.
	dropsUntransferred bool
	// dropsScratch: groups of scratch kinds are no store groups.
	dropsScratch bool
	// widensWindows: the window includes the extra retained tokens, which then are no part
	// of the spec.
	widensWindows bool

	// Of masks:

	// startToken: store masks begin at a start token, and are empty for negative lengths.
	startToken bool
	// mergedEagle: masks use the eagle flag of the attention group instead of the
	// group's own.
	mergedEagle bool
	// mambaStore says which states of a mamba group are worth storing.
	mambaStore mambaStoreRule
	// eagleReplay: with an eagle group a replay of the prompt ends at either of two
	// boundaries, a scheduler block earlier.
	eagleReplay bool

	// Of lookups:

	// floorsTokens: the number of tokens of a lookup is rounded down to the alignment.
	// Otherwise it must be a multiple.
	floorsTokens bool
	// shortensFullHit: a hit of all tokens is found again so that one is left to compute.
	shortensFullHit bool
	// exactAnswers: the store must give one answer for each key. Otherwise further answers
	// are ignored, and missing ones are an error if they are read.
	exactAnswers bool
	// ranks says which ranks must hold a block.
	ranks rankRule
	// namespaces: keys may have a store namespace, and be sharded.
	namespaces bool
	// tailBoundaries: the reply to a lookup has the tail boundary of each group.
	tailBoundaries bool
}

// fineGrainedRule says when hits may end inside a block.
type fineGrainedRule uint8

const (
	fineGrainedNever fineGrainedRule = iota
	// fineGrainedDerived: if some mamba group in cache mode align has a block larger than
	// the hash block.
	fineGrainedDerived
	// fineGrainedDerivedDCP: likewise, or with decode-context parallelism as large.
	fineGrainedDerivedDCP
	// fineGrainedConfigured: if Pool.CacheHitAlignmentTokens is below the scheduler block
	// size.
	fineGrainedConfigured
)

// mambaStoreRule says which states of a mamba group are worth storing.
type mambaStoreRule uint8

const (
	mambaStoreAll      mambaStoreRule = iota // the sentinel
	mambaStoreRetained                       // those at retention boundaries, if there is an interval
	mambaStoreNone                           // none: they are handed over at boundaries
)

// rankRule says which ranks must hold a block.
type rankRule uint8

const (
	// ranksOfWorker: tensor ranks up to the number of KV heads, on the PCP and DCP rank of
	// the worker that looks up.
	ranksOfWorker rankRule = iota
	// ranksOfPool: likewise on all PCP ranks, or with decode-context parallelism all tensor
	// ranks; the same for all groups.
	ranksOfPool
	// ranksOfGroup: likewise with the number of equal copies of each group.
	ranksOfGroup
)

// rulesOf20260620 are the rules of vLLM ab7fcbdd5.
func rulesOf20260620() rules {
	return rules{singleAlignsToBlock: true, mambaLookahead: true, exactAnswers: true}
}

// releaseChanges has a row for each known release of vLLM, oldest first: what it changes in the
// rules of the row before, nil if it has equal answers. The first one changes those of 2026-06-20.
var releaseChanges = []struct {
	name   string
	change func(r *rules)
}{
	{"0.24.0", func(r *rules) { r.mambaStore = mambaStoreRetained }},
	{"0.25.0", func(r *rules) {
		r.exactAnswers, r.ranks, r.startToken = false, ranksOfPool, true
	}},
	{"0.25.1", nil},
	{"0.26.0", func(r *rules) { r.fullKeepsHit = true }},
	{"0.27.0", func(r *rules) {
		r.singleAlignsToBlock, r.mambaLookahead = false, false
		r.fineGrained, r.mergedEagle = fineGrainedDerived, true
		r.floorsTokens, r.shortensFullHit, r.ranks = true, true, ranksOfGroup
	}},
	{"0.27.1", nil},
	{"0.28.0", nil},
	{"0.29.0", func(r *rules) {
		r.fineGrained, r.dropsUntransferred, r.cutsAllFull = fineGrainedDerivedDCP, true, true
		r.mambaStore, r.tailBoundaries = mambaStoreNone, true
	}},
	{"0.30.0", func(r *rules) {
		r.dropsScratch, r.windowChunks, r.namespaces = true, true, true
	}},
	{"0.31.0", nil},
	{"0.32.0", func(r *rules) {
		r.fineGrained, r.lookaheadToHashes, r.eagleReplay = fineGrainedConfigured, true, true
	}},
	{"0.33.0", func(r *rules) { r.widensWindows = true }},
}
