package api

import (
	"fmt"

	"github.com/hitline/hitline/coordinator"
)

// Explanation says why a lookup hits no more than it does. It is the reply to explain, in
// JSON.
type Explanation struct {
	Pool        string             `json:"pool,omitempty"` // its name, if it has one
	StartTokens int64              `json:"start_tokens"`   // where the lookup began
	HitTokens   int64              `json:"hit_tokens"`
	Groups      []GroupExplanation `json:"groups"`
	// Account says where the prompt's tokens would be counted now, nil if the server keeps no account.
	Account *LostTokens `json:"account,omitempty"`
	// Ending is not part of the reply.
	Ending coordinator.Ending `json:"-"`
}

// GroupExplanation says where one group alone would end the hit, and why. EndTokens is in
// tokens from the beginning of the prompt.
type GroupExplanation struct {
	Group     int                `json:"group"`
	Kind      coordinator.Kind   `json:"kind"`
	EndTokens int64              `json:"end_tokens"`
	Reason    coordinator.Reason `json:"reason"`
	// TailBoundary is the group's tail boundary in tokens, nil if the hit has none.
	TailBoundary *int64 `json:"tail_boundary,omitempty"`
	// FirstMissingBlock is the number of the first absent block of the group that a hit of
	// all tokens would need, nil if none is absent.
	FirstMissingBlock *int64 `json:"first_missing_block"`
	// MissingRank is the first rank, in the order of Coordinator.Ranks, that lacks that block,
	// and MissingRanks how many lack it. They are there if the block is on some of its ranks
	// only.
	MissingRank  *MissingRank `json:"missing_rank,omitempty"`
	MissingRanks int          `json:"missing_ranks,omitempty"`
	// GapStart and GapEnd are the blocks [GapStart, GapEnd) that keep the group from ending
	// later, nil if there are none: see coordinator.GroupEnd.
	GapStart *int64 `json:"gap_start"`
	GapEnd   *int64 `json:"gap_end"`
}

// MissingRank is a rank that lacks a block, as stores name it: see coordinator.GroupRank.
type MissingRank struct {
	TPRank  int `json:"tp_rank"`
	PPRank  int `json:"pp_rank"`
	PCPRank int `json:"pcp_rank"`
}

// String returns the rank by the names of its fields.
func (r MissingRank) String() string {
	return fmt.Sprintf("tp_rank %d, pp_rank %d, pcp_rank %d", r.TPRank, r.PPRank, r.PCPRank)
}

// NewExplanation returns the explanation of a hit from the end of each group. The caller sets
// StartTokens.
func NewExplanation(hit Hit, ends []coordinator.GroupEnd) Explanation {
	e := Explanation{HitTokens: hit.Tokens}
	for _, end := range ends {
		g := GroupExplanation{Group: end.Group, Kind: end.Kind, EndTokens: end.EndTokens, Reason: end.Reason}
		if end.FirstMissing >= 0 {
			g.FirstMissingBlock = &end.FirstMissing
		}
		if r := end.MissingRank; end.MissingRanks > 0 {
			g.MissingRank, g.MissingRanks = &MissingRank{r.TP, r.PP, r.PCP}, end.MissingRanks
		}
		if end.GapStart < end.GapEnd {
			g.GapStart, g.GapEnd = &end.GapStart, &end.GapEnd
		}
		if end.Group < len(hit.TailBoundaries) {
			tokens := hit.TailBoundaries[end.Group].Tokens // of the query, which is reused
			g.TailBoundary = &tokens
		}
		e.Groups = append(e.Groups, g)
	}
	return e
}
