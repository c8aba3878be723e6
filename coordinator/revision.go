package coordinator

import "fmt"

// Revision selects the reference whose answers are reproduced, by the date of its commit.
// The zero value is the default, 2026-06-20.
type Revision uint8

const (
	// Revision20260620 is vLLM ab7fcbdd5, the default.
	Revision20260620 Revision = iota
	// Revision20260817 is vLLM 455edc022: fine-grained hits for mamba, masks
	// relative to a start token, key namespaces per group.
	Revision20260817
	// Revision20260604 is vLLM 0c6631f02. Only FindHit, StoreMask and LoadMask support
	// it: its engines have another wire and other keys.
	Revision20260604
)

var revisionNames = [...]string{
	Revision20260620: "2026-06-20",
	Revision20260817: "2026-08-17",
	Revision20260604: "2026-06-04",
}

// String returns the date, for example "2026-06-20".
func (r Revision) String() string {
	if int(r) < len(revisionNames) {
		return revisionNames[r]
	}
	return fmt.Sprintf("revision(%d)", uint8(r))
}

// MarshalText implements encoding.TextMarshaler.
func (r Revision) MarshalText() ([]byte, error) {
	if int(r) >= len(revisionNames) {
		return nil, fmt.Errorf("coordinator: unknown revision number %d", uint8(r))
	}
	return []byte(revisionNames[r]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Revision) UnmarshalText(text []byte) error {
	for i, name := range revisionNames {
		if name == string(text) {
			*r = Revision(i)
			return nil
		}
	}
	return fmt.Errorf("coordinator: unknown revision %q, want 2026-06-04, 2026-06-20 or 2026-08-17", text)
}

// rules are the differences between revisions in FindHit. Those of masks are in masks.go,
// those of lookups in lookup.go, answers.go and ranks.go.
type rules struct {
	// singleAlignsToBlock: the hit of a single attention group is aligned to its block
	// size instead of the scheduler's.
	singleAlignsToBlock bool
	// fullKeepsHit: in later passes a full-attention group limits the hit to its own
	// result. Otherwise it rounds the hit down to its block size: limiting would be
	// wrong with mambaLookahead, which lets the hit grow.
	fullKeepsHit bool
	// mambaLookahead: an eagle mamba group looks one block past the current hit. It does
	// not drop a block, so the common hit can grow.
	mambaLookahead bool
	// trailingAbsent: in a group whose block is larger than the hash block, a chunk
	// beyond the hashes is absent instead of an error.
	trailingAbsent bool
	// mergedEagle: masks use the eagle flag of the attention group instead of the
	// group's own.
	mergedEagle bool
	// fineGrained: hits may end inside a block if a mamba group has cache mode align.
	fineGrained bool
}

var revisionRules = [...]rules{
	Revision20260604: {singleAlignsToBlock: true, mambaLookahead: true, trailingAbsent: true},
	Revision20260620: {singleAlignsToBlock: true, mambaLookahead: true},
	Revision20260817: {fullKeepsHit: true, mergedEagle: true, fineGrained: true},
}
