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
	body *bodyReader // that reads it; nil after null
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
	LoRAID    noValue `json:"lora_id"`
	Salt      noValue `json:"additionalsalt"`
	Salt2     noValue `json:"additional_salt"`
	ExtraKeys noValue `json:"extra_keys"`
	MMHashes  noValue `json:"mm_hashes"`
	MMInfos   noValue `json:"block_mm_infos"`
}

// noValue is null, an empty text or a list of nulls.
type noValue struct{}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. Engines number adapters from 1 on, so a lora_id of 0 is none.
func (noValue) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	kind := in.PeekKind()
	if kind == '[' {
		return readList(in, math.MaxInt, func(element []byte) error {
			if string(element) != "null" {
				return errOther
			}
			return nil
		})
	}
	if kind == '{' {
		return errOther
	}
	value, err := in.ReadValue()
	if err != nil {
		return err
	}
	if text := string(value); text == "null" || text == `""` || text == "0" && in.StackPointer() == "/lora_id" {
		return nil
	}
	return errOther
}

// Errors of an element of a list.
var (
	errID   = errors.New("is no token id; give a whole number of 64 bits")
	errHash = fmt.Errorf("is no hash; give a whole number of 64 bits, or hex of %d to %d bytes", shortHashLen, netproto.MaxHashLen)
)

// readList calls add with each element of a list as it is written, nil for a list or an object. null is an empty list. It
// fails with errType, with errMany beyond limit elements, as add or as in does.
func readList(in *jsontext.Decoder, limit int, add func(element []byte) error) error {
	kind := in.PeekKind()
	if kind != '[' && kind != 'n' && kind != jsontext.KindInvalid { // for which ReadToken has the error
		return errType
	}
	if _, err := in.ReadToken(); err != nil || kind == 'n' {
		return err
	}
	for i := 0; ; i++ {
		var element []byte
		var err error
		switch in.PeekKind() {
		case ']':
			_, err = in.ReadToken()
			return err
		case '[', '{':
		default:
			if element, err = in.ReadValue(); err != nil {
				return err
			}
		}
		if i == limit {
			return errMany
		}
		if err := add(element); err != nil {
			return fmt.Errorf("element %d %w", i, err)
		}
	}
}

// minList is how many bytes of a list are allocated at first.
const minList = 4 << 10

// grow returns a list with room for n more elements of so many bytes each, which the request holds. The list never has more
// than limit elements.
func grow[E any](l *lease, list []E, n, limit, elementBytes int) ([]E, error) {
	if cap(list)-len(list) >= n {
		return list, nil
	}
	size := min(max(2*cap(list), minList/elementBytes), limit)
	if err := l.exchange(int64(cap(list)*elementBytes), int64(size*elementBytes)); err != nil {
		return list, err
	}
	return append(make([]E, 0, size), list...), nil
}

// tokenIDs are the token ids of a prompt. Their memory is reused.
type tokenIDs struct {
	lease *lease
	set   bool
	ids   []int64
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *tokenIDs) UnmarshalJSONFrom(in *jsontext.Decoder) (err error) {
	if t.set = in.PeekKind() != 'n'; in.PeekKind() == '"' {
		return errText
	}
	if t.ids, err = grow(t.lease, t.ids[:0], 1, maxTokens, idBytes); err != nil { // not nil
		return err
	}
	return readList(in, maxTokens, func(element []byte) error {
		id, err := strconv.ParseInt(string(element), 10, 64)
		if err != nil {
			return errID
		}
		if t.ids, err = grow(t.lease, t.ids, 1, maxTokens, idBytes); err != nil {
			return err
		}
		t.ids = append(t.ids, id)
		return nil
	})
}

// hashes are those of a prompt: numbers of 64 bits, with a sign or without, or digests in hex, all of one length. Their
// memory is reused.
type hashes struct {
	lease   *lease
	set     bool
	bytes   []byte // joined
	hashLen int    // of each; 0: there is none
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (h *hashes) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	h.set, h.bytes, h.hashLen = in.PeekKind() != 'n', h.bytes[:0], 0
	return readList(in, maxHashes, h.add)
}

// add adds one hash, a number or a text in JSON.
func (h *hashes) add(element []byte) (err error) {
	const room = netproto.MaxHashLen // for one of any length
	if h.bytes, err = grow(h.lease, h.bytes, room, maxHashes*h.hashLen+room, 1); err != nil {
		return err
	}
	from := len(h.bytes)
	if h.bytes, err = appendHash(h.bytes, element); err != nil {
		return errHash
	}
	length := len(h.bytes) - from
	if from == 0 {
		h.hashLen = length
	}
	if length != h.hashLen {
		return fmt.Errorf("has %d bytes, and those before it %d; give hashes of one length", length, h.hashLen)
	}
	return nil
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
var prompts = sync.Pool{New: func() any { return &prompt{body: &bodyReader{}} }}

// size returns the bytes of the lists.
func (p *prompt) size() int64 {
	return int64(idBytes*cap(p.TokenIDs.ids) + cap(p.SeqHashes.bytes) + cap(p.BlockHash.bytes))
}

// idBytes is the size of a token id in bytes.
const idBytes = 8

// release gives the prompt back, with the memory of its lists, if it is small: a request holds all that its prompt has, also
// if it needs less.
func (p *prompt) release() {
	if p.body == nil || max(p.body.read, p.size()) > maxKept {
		return
	}
	p.body.Reader, p.body.call = nil, nil
	*p = prompt{
		body: p.body, TokenIDs: tokenIDs{ids: p.TokenIDs.ids[:0]}, SeqHashes: hashes{bytes: p.SeqHashes.bytes[:0]},
		BlockHash: hashes{bytes: p.BlockHash.bytes[:0]},
	}
	prompts.Put(p)
}

// readPrompt reads the body of a request about a prompt, which holds the lists as they arrive.
func (c *call) readPrompt(body io.Reader) (err error) {
	p := c.prompt
	p.TokenIDs.lease, p.SeqHashes.lease, p.BlockHash.lease = &c.lease, &c.lease, &c.lease
	c.lease.used = p.size()
	if err := c.decode(body, p); err != nil {
		return err
	}
	if p.Model, err = p.or(p.Model); err != nil {
		return err
	}
	if err := p.checkTexts(); err != nil {
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
