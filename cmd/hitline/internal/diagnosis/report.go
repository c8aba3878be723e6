package diagnosis

import (
	"fmt"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// Report is the result of Examine. The names of its JSON fields are part of doctor's
// interface.
type Report struct {
	Pool       string     `json:"pool,omitempty"` // the name of a server's pool, if it is one
	Backend    string     `json:"backend"`
	Address    string     `json:"address,omitempty"`
	Server     string     `json:"server,omitempty"`
	Mode       string     `json:"mode,omitempty"`
	Nodes      int        `json:"nodes,omitempty"`
	RoundTrip  int64      `json:"round_trip_us,omitempty"`
	Patterns   []string   `json:"key_patterns"` // of the first maxPatterns group ranks
	GroupRanks int        `json:"group_ranks"`  // each has its own key pattern
	Sampled    int        `json:"keys_sampled"`
	Prompt     *PromptHit `json:"prompt,omitempty"` // nil if no prompt was looked up
	Findings
}

// PromptHit is the answer to a lookup of a prompt, with the reason where each group ends.
type PromptHit struct {
	Tokens int64 `json:"tokens"` // of the lookup
	api.Explanation
}

// Findings are the results of comparing the pool with a store.
type Findings struct {
	Notes    []string `json:"notes,omitempty"`    // need no change
	Problems []string `json:"problems,omitempty"` // each says what is wrong and what to do
	LeaseMS  int64    `json:"lease_ms,omitempty"` // for which the store keeps a found block; 0 if it does not state it
}

func (f *Findings) addNote(format string, args ...any) {
	f.Notes = append(f.Notes, fmt.Sprintf(format, args...))
}

// addProblem adds a problem, unless f has the same text already.
func (f *Findings) addProblem(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(f.Problems, text) {
		f.Problems = append(f.Problems, text)
	}
}

// maxPatterns is how many key patterns a report lists. A pool may have thousands.
const maxPatterns = 4

// newReport returns a report with the key patterns that lookups ask for. rules are nil without a pool.
func newReport(backend string, rules *coordinator.Coordinator) *Report {
	r := &Report{Backend: backend}
	if rules == nil {
		return r
	}
	for _, warning := range rules.Warnings() {
		r.addNote("pool.%s", warning)
	}
	if rules.Pool().CapacityOnly {
		r.addNote("pool.capacity_only is set: every lookup is answered with a hit of 0")
		return r
	}
	for g := range rules.NumGroups() {
		for _, rank := range rules.Ranks(g) {
			if r.GroupRanks++; r.GroupRanks <= maxPatterns {
				r.Patterns = append(r.Patterns, rules.KeyPrefix(g, rank)+"HASH")
			}
		}
	}
	return r
}

// DescribeMemory returns the report on a pool in the memory backend, which cannot be
// examined from another process.
func DescribeMemory(rules *coordinator.Coordinator) *Report {
	r := newReport("memory", rules)
	r.addNote("the memory backend is in serve's own process: there is nothing to connect to; hitline stat shows what is in it")
	return r
}
