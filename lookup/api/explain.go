package api

import "github.com/hitline/hitline/coordinator"

// Explanation answers why a lookup hit no more than it did.
type Explanation struct {
	HitTokens int64              `json:"hit_tokens"`
	Groups    []GroupExplanation `json:"groups"`
}

// GroupExplanation tells where one group, asked alone, would have ended the hit,
// and why.
type GroupExplanation struct {
	Group     int                `json:"group"`
	Kind      coordinator.Kind   `json:"kind"`
	EndTokens int64              `json:"end_tokens"`
	Reason    coordinator.Reason `json:"reason"`
	// FirstMissingBlock is the first absent block among those that a hit of all
	// tokens would need of this group; nil if none is absent.
	FirstMissingBlock *int64 `json:"first_missing_block"`
}

// NewExplanation returns the explanation of a hit, given the end of each group.
func NewExplanation(hit Hit, ends []coordinator.GroupEnd) Explanation {
	e := Explanation{HitTokens: hit.Tokens}
	for _, end := range ends {
		g := GroupExplanation{Group: end.Group, Kind: end.Kind, EndTokens: end.EndTokens, Reason: end.Reason}
		if end.FirstMissing >= 0 {
			g.FirstMissingBlock = &end.FirstMissing
		}
		e.Groups = append(e.Groups, g)
	}
	return e
}
