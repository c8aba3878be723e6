package client

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/hitline/hitline/coordinator"
)

// Prompt is a prompt, by Tokens or, if they are nil, by Hashes. All is borrowed until the request has ended.
type Prompt struct {
	Model     string // "": the only one of the tenant
	Tenant    string // "": default
	BlockSize int    // tokens of a block, which the server compares with its own; 0: any
	Tokens    []int64
	Hashes    coordinator.Hashes // of the whole blocks, 8 bytes or longer; none for less than a block
	LoRAName  string             // of the request's adapter, with Tokens
	LoRAPath  string             // of the adapter, on which hashes depend from vLLM 0.31.0 on
	CacheSalt string             // of the request, with Tokens
}

// Query asks about a prompt.
type Query struct {
	Prompt
	Engine    string // asks about one engine alone, by its instance_id; "": all
	LastKnown bool   // engines whose events may be missing count for what they had last
	KVHints   bool   // also how another engine can fetch the prefix
	// Loadable also asks the shared store, which may grant leases. Hashes must be whole digests then, of a prompt of NumTokens
	// tokens; 0: of as many as Tokens, or those of the whole blocks.
	Loadable  bool
	NumTokens int64
}

// Prediction says that a prompt was sent to a data-parallel rank of an engine.
type Prediction struct {
	Prompt
	Engine string
	Rank   int
}

// body is the body of a request about a prompt: see openapi.yaml.
type body struct {
	Model     string    `json:"model,omitempty"`
	Tenant    string    `json:"tenant_id,omitempty"`
	BlockSize int       `json:"block_size,omitempty"`
	Tokens    []int64   `json:"token_ids,omitzero"`
	Hashes    *[]string `json:"seq_hashes,omitempty"` // in hex
	LoRAName  string    `json:"lora_name,omitempty"`
	LoRAPath  string    `json:"lora_path,omitempty"`
	CacheSalt string    `json:"cache_salt,omitempty"`
	Engine    string    `json:"instance_id,omitempty"`
	Rank      int       `json:"dp_rank,omitempty"`
	Loadable  bool      `json:"loadable,omitempty"`
	NumTokens int64     `json:"num_tokens,omitempty"`
	LastKnown bool      `json:"last_known,omitempty"`
	KVHints   bool      `json:"kv_hints,omitempty"`
}

func (p *Prompt) body() body {
	b := body{
		Model: p.Model, Tenant: p.Tenant, BlockSize: p.BlockSize, Tokens: p.Tokens,
		LoRAName: p.LoRAName, LoRAPath: p.LoRAPath, CacheSalt: p.CacheSalt,
	}
	if p.Tokens == nil {
		hashes := make([]string, 0, p.Hashes.Len())
		for _, hash := range p.Hashes.All() {
			hashes = append(hashes, hex.EncodeToString(hash))
		}
		b.Hashes = &hashes
	}
	return b
}

// encode returns the body of /query.
func (q *Query) encode() ([]byte, error) {
	b := q.body()
	b.Engine, b.Loadable, b.NumTokens, b.LastKnown, b.KVHints = q.Engine, q.Loadable, q.NumTokens, q.LastKnown, q.KVHints
	return encode(&b)
}

// encode returns the body of /predict.
func (p *Prediction) encode() ([]byte, error) {
	b := p.body()
	b.Engine, b.Rank = p.Engine, p.Rank
	return encode(&b)
}

func encode(b *body) ([]byte, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the request: %w", err)
	}
	return text, nil
}
