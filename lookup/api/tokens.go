package api

import "time"

// PoolTokens says where the tokens of a pool's prompts went since the start. A prompt counts once, some seconds after it was
// last asked about: see package lookup/tokens for the places and their order.
type PoolTokens struct {
	// Tokens are the tokens by place: all places are there.
	Tokens map[string]int64 `json:"tokens"`
	// Prompts is the number of prompts that are counted, and Open that of prompts which may be asked about again.
	Prompts int64 `json:"prompts"`
	Open    int   `json:"open"`
	// NotCounted is the number of lookups that were not accounted for because too many came at a time.
	NotCounted int64 `json:"not_counted"`
	// RemembersSince is when the block was asked for whose last ask is longest ago, of those that are remembered. The zero time
	// means that nothing is remembered. Share is the share of the blocks that is remembered; what was known of others is
	// estimated.
	RemembersSince time.Time `json:"remembers_since,omitzero"`
	Share          float64   `json:"remembered_share"`
	// RetentionSeconds is up to which age half of the blocks that were in the pool are still found when they are asked for again,
	// 0 if that is not known.
	RetentionSeconds float64 `json:"retention_s"`
	// EvictedAgeSeconds is how long ago half or more of the blocks that the pool has evicted had last been asked for, when they were asked
	// for again. 0 means that it is not known.
	EvictedAgeSeconds float64 `json:"evicted_age_s"`
	// Curve says which share of the tokens that are asked for LRU pools of other sizes would give, of the last 24 hours, and
	// MeasuredHitShare which share the pool gave. They are absent while too little is remembered to tell. If the size of the pool is
	// known, sizes are multiples of it.
	Curve            []SizedPool `json:"curve"`
	MeasuredHitShare *float64    `json:"measured_hit_share,omitempty"`
	// Keys is how many keys lookups of the whole prompts would have asked a store for, once for each prompt.
	Keys int64 `json:"keys"`
	// LookedKeys is how many keys a store was asked for to see whether engines have saved what they lacked, and LooksDropped how many
	// such looks could not be made.
	LookedKeys   int64 `json:"looked_keys"`
	LooksDropped int64 `json:"looks_dropped"`
	// Askers are the askers with the most prompts, the busiest first. OtherAskers sums up the others, if there are some.
	Askers      []Asker `json:"askers,omitempty"`
	OtherAskers *Asker  `json:"other_askers,omitempty"`
	// LostMost are the prompts of the last hour that lost most tokens, those that lost most first. The reply to stat lacks them.
	LostMost []LostRequest `json:"lost_most,omitempty"`
}

// AskedOfPool returns how many of the tokens by place a pool can be asked for: all but those that the engine held, and those that
// no pool could give.
func AskedOfPool(tokens map[string]int64) (asked int64) {
	for place, n := range tokens {
		if place != "engine" && place != "rules" {
			asked += n
		}
	}
	return asked
}

// HitShare returns the share of what a pool gave in AskedOfPool. It returns false if nothing was asked for.
func HitShare(tokens map[string]int64) (share float64, ok bool) {
	asked := AskedOfPool(tokens)
	if asked == 0 {
		return 0, false
	}
	return float64(tokens["pool"]) / float64(asked), true
}

// AtSize returns the hit share of a size, such as "2". It returns false if it is not in the curve.
func (t *PoolTokens) AtSize(size string) (share float64, ok bool) {
	for _, of := range t.Curve {
		if of.Size == size {
			return of.HitShare, true
		}
	}
	return 0, false
}

// SizedPool is a pool of another size.
type SizedPool struct {
	Size     string  `json:"size,omitempty"`  // 0.25 to 4 times that of the pool, or inf
	Blocks   int64   `json:"blocks,omitzero"` // in every group and on every rank; not of inf
	HitShare float64 `json:"hit_share"`
}

// LostRequest is a prompt of which the pool lacked much.
type LostRequest struct {
	Asker  string    `json:"asker"`
	Tokens int64     `json:"tokens"` // that were lost
	Place  string    `json:"place,omitempty"`
	Block  int64     `json:"block"` // the block that ended the hit, from token 0 on
	At     time.Time `json:"at"`    // when it was last asked about
}

// Asker is who asked about prompts: a process that has told its name, else a host.
type Asker struct {
	Name    string           `json:"name"`
	Prompts int64            `json:"prompts"`
	Tokens  map[string]int64 `json:"tokens"`
	// FirstBlockShared is the share of its prompts, asked about from their first token on in the last hour, whose first block
	// another asker had asked for before. It is absent if there are too few prompts, or no other asker.
	FirstBlockShared *float64  `json:"first_block_shared,omitempty"`
	LastSeen         time.Time `json:"last_seen"`
}

// LostTokens says where the tokens of one prompt would be counted now.
type LostTokens struct {
	Tokens map[string]int64 `json:"tokens"` // without places of 0
	// Place is where those went that the prompt lost, "" if it lost none, or "missing" for peers that may not know.
	Place string `json:"place,omitempty"`
	// Block is the block that ends the hit, from token 0 on. AskedAt is when it was last asked for, WholeAt when it was last
	// found whole in the pool. They are zero if that is not known, or never was.
	Block   int64     `json:"block"`
	AskedAt time.Time `json:"asked_at,omitzero"`
	WholeAt time.Time `json:"whole_at,omitzero"`
	// RemembersSince is that of PoolTokens: what was asked for only before it counts as new.
	RemembersSince time.Time `json:"remembers_since,omitzero"`
}
