package api

// HoldersQuery asks which engines have most of a prompt. It is the JSON of a holders request; the hashes
// follow it.
type HoldersQuery struct {
	// Model names the model; "" if the server has one.
	Model string `json:"model,omitempty"`
	// Tenant is whose model it is; "" is DefaultTenant.
	Tenant string `json:"tenant,omitempty"`
	// Instance asks about one instance, "" about all.
	Instance string `json:"instance,omitempty"`
	// Loadable also asks how many tokens the shared store can load. The store is asked, which grants
	// leases of what it has. The hashes must be whole digests.
	Loadable bool `json:"loadable,omitempty"`
	// NumTokens is the length of the prompt, for Loadable; 0: that of its whole blocks.
	NumTokens int64 `json:"num_tokens,omitempty"`
	// Limit is how many holders the answer has at most, those with the longest prefixes; 0: as many as fit.
	Limit int `json:"limit,omitempty"`
}

// DefaultTenant is the tenant of models and queries that name none.
const DefaultTenant = "default"

// HoldersAnswer is the reply to a holders request, in JSON.
type HoldersAnswer struct {
	BlockSize int      `json:"block_size"` // tokens that one hash of the query covers
	Holders   []Holder `json:"holders"`    // the longest prefix first
	// LeftOut is how many more holders have a prefix, none longer than the last one listed: the query
	// limits the answer, or the reply would exceed MaxHoldersReply.
	LeftOut int `json:"left_out,omitempty"`
	// LoadableTokens is how many leading tokens the shared store can load now; nil if that was not asked.
	LoadableTokens *int64 `json:"loadable_tokens,omitempty"`
}

// MaxHoldersReply is the largest JSON of an answer in bytes: half of what a peer may leave unread by
// default. It is some 4,000 holders with short names.
const MaxHoldersReply = 512 << 10

// Holder is what one data-parallel rank of an instance has of a prompt. Those that have nothing are left out.
type Holder struct {
	Instance string `json:"instance"`
	Rank     int    `json:"rank"`
	Tokens   int64  `json:"tokens"` // longest prefix in all media together
	// Media has the longest prefix that one medium alone has, in tokens, by its name: GPU, CPU and so on as engines
	// name them, predicted for blocks that were predicted.
	Media map[string]int64 `json:"media"`
}
