package httpapi

import (
	"cmp"
	"io"
	"math"
	"sync"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router"
)

// prompt is the body of a request about a prompt.
type prompt struct {
	modelNames
	foreign
	Model     field[string] `json:"model"`
	Tenant    field[string] `json:"tenant_id"`
	Engine    field[string] `json:"instance_id"`
	Rank      field[int64]  `json:"dp_rank"`
	BlockSize field[int64]  `json:"block_size"`

	TokenIDs  tokenIDs      `json:"token_ids"`
	LoRAName  field[string] `json:"lora_name"`
	LoRAPath  field[string] `json:"lora_path"`
	CacheSalt field[string] `json:"cache_salt"`
	SeqHashes hashes        `json:"seq_hashes"`
	BlockHash hashes        `json:"block_hash"` // the same as seq_hashes

	Loadable  field[bool]  `json:"loadable"`
	NumTokens field[int64] `json:"num_tokens"`
	LastKnown field[bool]  `json:"last_known"`
	KVHints   field[bool]  `json:"kv_hints"`
}

// modelNames are other names of the field model.
type modelNames struct {
	Model2 field[string] `json:"modelname"`
	Model3 field[string] `json:"model_name"`
}

// or returns the model that a body names, as model or otherwise, "" if none. It fails if there are two.
func (m *modelNames) or(model string) (string, error) {
	name := cmp.Or(model, m.Model2.value, m.Model3.value)
	if name != model+m.Model2.value+m.Model3.value {
		return "", wrongField("model", "%w", errTwice)
	}
	return name, nil
}

// foreign are fields of other indexers that would change the answer. Without a value they are accepted.
type foreign struct {
	LoRAID    refusedID `json:"lora_id"`
	Salt      refused   `json:"additionalsalt"`
	Salt2     refused   `json:"additional_salt"`
	ExtraKeys refused   `json:"extra_keys"`
	MMHashes  refused   `json:"mm_hashes"`
	MMInfos   refused   `json:"block_mm_infos"`
}

// prompts are those that are not used.
var prompts = sync.Pool{New: func() any { return new(prompt) }}

// size returns the bytes of the lists, with a quarter that the next growth may add.
func (p *prompt) size() int64 {
	return int64(idBytes*cap(p.TokenIDs.ids)+cap(p.SeqHashes.bytes)+cap(p.BlockHash.bytes)) / 4 * 5
}

// idBytes is the size of a token id in bytes.
const idBytes = 8

// release drops what was read. It keeps the memory of short lists: a request holds all that its prompt has, also if it
// needs less.
func (p *prompt) release() {
	kept := prompt{}
	if p.size() <= maxKept {
		kept.TokenIDs.ids, kept.SeqHashes.bytes, kept.BlockHash.bytes = p.TokenIDs.ids[:0], p.SeqHashes.bytes[:0], p.BlockHash.bytes[:0]
	}
	*p = kept
	prompts.Put(p)
}

// readPrompt reads the body of a request about a prompt.
func (c *call) readPrompt(body io.Reader) error {
	p := c.prompt
	hold := func(buffered int64) error { return c.lease.hold(p.size() + buffered) }
	if err := decode(body, p, true, hold); err != nil {
		return err
	}
	var err error
	if p.Model.value, err = p.or(p.Model.value); err != nil {
		return err
	}
	hashes := p.SeqHashes.set || p.BlockHash.set
	switch {
	case p.SeqHashes.set && p.BlockHash.set:
		return wrongField("block_hash", "%w", errTwice)
	case p.BlockSize.value < 0 || p.BlockSize.value > math.MaxInt32:
		return wrongField("block_size", "%d is no number of tokens; give 1 to %d, or 0 for the model's", p.BlockSize.value, math.MaxInt32)
	case p.TokenIDs.set && hashes:
		return wrongField("token_ids", "is there beside hashes; give one of them")
	case !p.TokenIDs.set && !hashes:
		return wrongField("token_ids", "is missing, and so is seq_hashes; give one of them")
	case p.LoRAPath.value != "" && p.LoRAName.value == "": // the hashes would be those of the base model
		return wrongField("lora_name", "is missing beside lora_path; give both")
	}
	return nil
}

// toQuery returns the query that a body asks. It borrows the lists.
func (p *prompt) toQuery() router.Query {
	list := &p.SeqHashes
	if p.BlockHash.set {
		list = &p.BlockHash
	}
	q := router.Query{
		ModelKey: router.ModelKey{Tenant: cmp.Or(p.Tenant.value, router.DefaultTenant), Name: p.Model.value},
		Engine:   p.Engine.value, BlockSize: int(p.BlockSize.value), Hashes: coordinator.NewHashes(list.bytes, list.hashLen),
		Tokens: p.TokenIDs.ids, Loadable: p.Loadable.value, NumTokens: p.NumTokens.value, LastKnown: p.LastKnown.value,
		KVHints: p.KVHints.value,
	}
	if p.LoRAName.value != "" || p.CacheSalt.value != "" {
		q.Keys = &blockhash.ExtraKeys{Salt: p.CacheSalt.value}
	}
	if p.LoRAName.value != "" {
		q.Keys.LoRA = &blockhash.LoRA{Name: p.LoRAName.value, Path: p.LoRAPath.value}
	}
	return q
}
