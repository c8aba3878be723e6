package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Answer says which engines have most of a prompt. Lengths are in tokens of whole blocks. Names are the server's texts, which
// may have any characters.
type Answer struct {
	Tenant  string
	Engines []Engine // that have any of it, the longest prefix first, then by name
	// LoadableTokens are the leading tokens that the shared store can load, -1 if that was not asked, or is unknown, as
	// LoadableUnknown says.
	LoadableTokens  int64
	LoadableUnknown string
	// Unsure has, by name, the engines that may have other blocks than that, with the reasons of all their ranks: see the
	// constants. UnsureRanks has the same by rank.
	Unsure      map[string][]string
	UnsureRanks map[string]map[int][]string
	// KVHints has, by the engine to fetch from, the KvHintsEnvelope to put into a request to another engine, as kv_hints. It is
	// empty if it was not asked, or if there is no such engine.
	KVHints map[string]json.RawMessage
	JSON    json.RawMessage // the whole answer
}

// Engine is what one engine has of a prompt.
type Engine struct {
	Name   string
	Tokens int64            // the longest prefix of a rank, in all media together
	Media  map[string]int64 // the prefix in each medium alone: GPU, CPU, DISK and others; Predicted
	Ranks  map[int]int64    // the prefix of each data-parallel rank that has any
}

// Predicted is the medium of blocks that were predicted.
const Predicted = "predicted"

// Reasons in Answer.Unsure. A later server may know others.
const (
	ReasonUnknown    = "unknown"    // the server knows no engine of the name in Query.Engine
	ReasonStale      = "stale"      // events may be missing: only predictions count, or with LastKnown what it had last
	ReasonIncomplete = "incomplete" // it may have more
	ReasonUnchecked  = "unchecked"  // it may hash token ids otherwise than the server
	ReasonDiffer     = "differ"     // it hashes token ids otherwise than the server
)

// AllRanks stands for all data-parallel ranks of an engine.
const AllRanks = -1

// Prefix returns how many leading tokens a rank of an engine has, with AllRanks the rank that has most, and whether its events
// may be missing, with AllRanks those of any rank. An engine that the server does not follow under this name has 0: see
// Services.Sources.
func (a *Answer) Prefix(engine string, rank int) (tokens int64, isStale bool) {
	reasons := a.Unsure[engine]
	if rank != AllRanks {
		reasons = a.UnsureRanks[engine][rank]
	}
	isStale = slices.Contains(reasons, ReasonStale)
	n := slices.IndexFunc(a.Engines, func(e Engine) bool { return e.Name == engine })
	switch {
	case n < 0:
		return 0, isStale
	case rank != AllRanks:
		return a.Engines[n].Ranks[rank], isStale
	}
	return a.Engines[n].Tokens, isStale
}

// count is a number of tokens.
type count int64

// UnmarshalJSON implements json.Unmarshaler.
func (c *count) UnmarshalJSON(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%s is no number of tokens", text)
	}
	*c = count(n)
	return nil
}

// counts returns numbers of tokens, by what has them.
func counts[K comparable](of map[K]count) map[K]int64 {
	numbers := make(map[K]int64, len(of))
	for key, n := range of {
		numbers[key] = int64(n)
	}
	return numbers
}

// decodeAnswer reads an answer of /query.
func decodeAnswer(reply []byte) (*Answer, error) {
	var doc struct {
		Instances map[string]struct {
			Longest *count           `json:"longest_matched"`
			GPU     count            `json:"gpu"`
			CPU     count            `json:"cpu"`
			Disk    count            `json:"disk"`
			DP      map[int]count    `json:"dp"`
			Media   map[string]count `json:"media"`
		} `json:"instances"`
		Tenant   string                      `json:"tenant_id"`
		Loadable *count                      `json:"loadable_tokens"`
		Unknown  string                      `json:"loadable_unknown"`
		Unsure   map[string][]string         `json:"unsure"`
		Ranks    map[string]map[int][]string `json:"unsure_ranks"`
		KVHints  map[string]json.RawMessage  `json:"kv_hints"`
	}
	if err := json.Unmarshal(reply, &doc); err != nil {
		return nil, err
	}
	if doc.Instances == nil {
		return nil, errors.New("instances are missing")
	}
	a := &Answer{
		Tenant: doc.Tenant, LoadableTokens: -1, LoadableUnknown: doc.Unknown, Unsure: doc.Unsure, UnsureRanks: doc.Ranks,
		KVHints: doc.KVHints, JSON: reply,
	}
	if doc.Loadable != nil {
		a.LoadableTokens = int64(*doc.Loadable)
	}
	for name, e := range doc.Instances {
		if e.Longest == nil {
			return nil, fmt.Errorf("longest_matched of %q is missing", name)
		}
		media := counts(e.Media)
		media["GPU"], media["CPU"], media["DISK"] = int64(e.GPU), int64(e.CPU), int64(e.Disk)
		a.Engines = append(a.Engines, Engine{name, int64(*e.Longest), media, counts(e.DP)})
	}
	slices.SortFunc(a.Engines, func(a, b Engine) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), strings.Compare(a.Name, b.Name))
	})
	return a, nil
}
