package httpapi

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
	"github.com/hitline/hitline/router"
)

const (
	// maxTokens is a prompt of a million token ids: 8 MiB in memory while it is answered.
	maxTokens = 1 << 20
	// maxHashes takes as much as maxTokens, with digests of 32 bytes.
	maxHashes = 1 << 18
)

// prompt is the body of a request about a prompt.
type prompt struct {
	modelNames
	foreign
	Model     string `json:"model"`
	Tenant    string `json:"tenant_id"`
	Engine    string `json:"instance_id"`
	Rank      int    `json:"dp_rank"`
	BlockSize int64  `json:"block_size"`

	TokenIDs  tokenIDs `json:"token_ids"`
	LoRAName  string   `json:"lora_name"`
	LoRAPath  string   `json:"lora_path"`
	CacheSalt string   `json:"cache_salt"`
	SeqHashes hashes   `json:"seq_hashes"`
	BlockHash hashes   `json:"block_hash"` // the same as seq_hashes

	Loadable  bool  `json:"loadable"`
	NumTokens int64 `json:"num_tokens"`
	LastKnown bool  `json:"last_known"`
	KVHints   bool  `json:"kv_hints"`
}

// modelNames are other names of the field model.
type modelNames struct {
	Model2 string `json:"modelname"`
	Model3 string `json:"model_name"`
}

// or returns the model that a body names, as model or otherwise, "" if none. It fails if there are two.
func (m *modelNames) or(model string) (string, error) {
	name := cmp.Or(model, m.Model2, m.Model3)
	if name != model+m.Model2+m.Model3 {
		return "", wrongField("model", "%w", errTwice)
	}
	return name, nil
}

// foreign are fields of other indexers that would change the answer. Without a value they are accepted.
type foreign struct {
	LoRAID    jsontext.Value `json:"lora_id"`
	Salt      jsontext.Value `json:"additionalsalt"`
	Salt2     jsontext.Value `json:"additional_salt"`
	ExtraKeys jsontext.Value `json:"extra_keys"`
	MMHashes  jsontext.Value `json:"mm_hashes"`
	MMInfos   jsontext.Value `json:"block_mm_infos"`
}

// check refuses a foreign field that has a value: neither null, an empty text nor a list of nulls. Engines number adapters
// from 1 on, so a lora_id of 0 is none.
func (f *foreign) check() error {
	for name, value := range map[string]jsontext.Value{
		"lora_id": f.LoRAID, "additionalsalt": f.Salt, "additional_salt": f.Salt2, "extra_keys": f.ExtraKeys,
		"mm_hashes": f.MMHashes, "block_mm_infos": f.MMInfos,
	} {
		isNull := string(value) == `""` || name == "lora_id" && string(value) == "0"
		elements := bytes.TrimSuffix(bytes.TrimPrefix(value, []byte("[")), []byte("]"))
		rest := bytes.Trim(bytes.ReplaceAll(elements, []byte("null"), nil), ", \t\r\n")
		if !isNull && len(rest) > 0 {
			return wrongField(name, "%w", errOther)
		}
	}
	return nil
}

// Errors of an element of a list.
var (
	errID   = errors.New("is no token id; give a whole number of 64 bits")
	errHash = fmt.Errorf("is no hash; give a whole number of 64 bits, or hex of %d to %d bytes", shortHashLen, netproto.MaxHashLen)
)

// elementsOf returns what is in a list of numbers and texts without commas, and how many elements that are. null is an
// empty list. At most limit are possible.
func elementsOf(list []byte, limit int) (inside []byte, n int, err error) {
	inside, isList := bytes.CutPrefix(list, []byte("["))
	switch {
	case string(list) == "null":
		return nil, 0, nil
	case !isList:
		return nil, 0, errType
	}
	if inside = bytes.TrimSpace(bytes.TrimSuffix(inside, []byte("]"))); len(inside) == 0 {
		return nil, 0, nil
	}
	if n = 1 + bytes.Count(inside, []byte(",")); n > limit {
		return nil, 0, errMany
	}
	return inside, n, nil
}

// tokenIDs are the token ids of a prompt. Their memory is reused.
type tokenIDs struct {
	set bool
	ids []int64
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *tokenIDs) UnmarshalJSON(list []byte) error {
	inside, n, err := elementsOf(list, maxTokens)
	t.set, t.ids = string(list) != "null", slices.Grow(t.ids[:0], max(n, 1)) // not nil
	for i := range n {
		var element []byte
		element, inside, _ = bytes.Cut(inside, []byte(","))
		id, err := strconv.ParseInt(string(bytes.TrimSpace(element)), 10, 64)
		if err != nil {
			return fmt.Errorf("element %d %w", i, errID)
		}
		t.ids = append(t.ids, id)
	}
	return err
}

// hashes are those of a prompt: numbers of 64 bits, with a sign or without, or digests in hex, all of one length. Their
// memory is reused.
type hashes struct {
	set     bool
	bytes   []byte // joined
	hashLen int    // of each; 0: there is none
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *hashes) UnmarshalJSON(list []byte) error {
	inside, n, err := elementsOf(list, maxHashes)
	h.set, h.bytes, h.hashLen = string(list) != "null", h.bytes[:0], 0
	for i := range n {
		var element []byte
		element, inside, _ = bytes.Cut(inside, []byte(","))
		from := len(h.bytes)
		if h.bytes, err = appendHash(h.bytes, bytes.TrimSpace(element)); err != nil {
			return fmt.Errorf("element %d %w", i, errHash)
		}
		length := len(h.bytes) - from
		if i == 0 {
			h.hashLen, h.bytes = length, slices.Grow(h.bytes, (n-1)*length)
		}
		if length != h.hashLen {
			return fmt.Errorf("element %d has %d bytes, and those before it %d; give hashes of one length", i, length, h.hashLen)
		}
	}
	return err
}

// shortHashLen is the length of a hash that is a number, in bytes.
const shortHashLen = 8

// appendHash appends one hash, a number or a text in JSON.
func appendHash(hashes, element []byte) ([]byte, error) {
	if digits, isText := bytes.CutPrefix(element, []byte(`"`)); isText {
		digits = bytes.TrimSuffix(digits, []byte(`"`))
		if len(digits) < 2*shortHashLen || len(digits) > 2*netproto.MaxHashLen {
			return hashes, errHash
		}
		return hex.AppendDecode(hashes, digits)
	}
	if bytes.HasPrefix(element, []byte("-")) {
		signed, err := strconv.ParseInt(string(element), 10, 64)
		return binary.BigEndian.AppendUint64(hashes, uint64(signed)), err //nolint:gosec // the same 64 bits
	}
	bits, err := strconv.ParseUint(string(element), 10, 64)
	return binary.BigEndian.AppendUint64(hashes, bits), err
}

// prompts are those that are not used.
var prompts = sync.Pool{New: func() any { return new(prompt) }}

// size returns the bytes of the lists.
func (p *prompt) size() int64 {
	return int64(idBytes*cap(p.TokenIDs.ids) + cap(p.SeqHashes.bytes) + cap(p.BlockHash.bytes))
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

// readPrompt reads the body of a request about a prompt. Until the text is dropped the request holds it and the lists.
func (c *call) readPrompt(body io.Reader) error {
	p := c.prompt
	textBytes, err := c.decode(body, p)
	if err != nil {
		return err
	}
	if err := c.lease.hold(textBytes + p.size()); err != nil {
		return err
	}
	if p.Model, err = p.or(p.Model); err != nil {
		return err
	}
	if err := cmp.Or(p.foreign.check(), p.checkTexts()); err != nil {
		return err
	}
	hashes := p.SeqHashes.set || p.BlockHash.set
	switch {
	case p.SeqHashes.set && p.BlockHash.set:
		return wrongField("block_hash", "%w", errTwice)
	case p.BlockSize < 0 || p.BlockSize > math.MaxInt32:
		return wrongField("block_size", "%d is no number of tokens; give 1 to %d, or 0 for the model's", p.BlockSize, math.MaxInt32)
	case p.TokenIDs.set && hashes:
		return wrongField("token_ids", "is there with hashes; give one of them")
	case !p.TokenIDs.set && !hashes:
		return wrongField("token_ids", "is missing, and so is seq_hashes; give one of them")
	case p.TokenIDs.set && len(p.TokenIDs.ids) == 0: // a mistake of the router, which would look like a cold cache for ever
		return wrongField("token_ids", "is empty; give those of the whole prompt, or seq_hashes, which are none for less than a block")
	case p.LoRAPath != "" && p.LoRAName == "": // the hashes would be those of the base model
		return wrongField("lora_name", "is missing, and lora_path is there; give both")
	}
	return nil
}

// checkTexts refuses long texts: they are hashed, and may come back in an error.
func (p *prompt) checkTexts() error {
	for name, text := range map[string]string{
		"model": p.Model, "tenant_id": p.Tenant, "instance_id": p.Engine, "lora_name": p.LoRAName, "lora_path": p.LoRAPath, "cache_salt": p.CacheSalt,
	} {
		if len(text) > maxText {
			return wrongField(name, "%w", errLong)
		}
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
		ModelKey: router.ModelKey{Tenant: cmp.Or(p.Tenant, router.DefaultTenant), Name: p.Model},
		Engine:   p.Engine, BlockSize: int(p.BlockSize), Hashes: coordinator.NewHashes(list.bytes, list.hashLen),
		Loadable: p.Loadable, NumTokens: p.NumTokens, LastKnown: p.LastKnown, KVHints: p.KVHints,
	}
	if p.TokenIDs.set {
		q.Tokens = p.TokenIDs.ids
	}
	if p.LoRAName != "" || p.CacheSalt != "" {
		q.Keys = &blockhash.ExtraKeys{Salt: p.CacheSalt}
	}
	if p.LoRAName != "" {
		q.Keys.LoRA = &blockhash.LoRA{Name: p.LoRAName, Path: p.LoRAPath}
	}
	return q
}
