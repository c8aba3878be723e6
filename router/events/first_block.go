package events

import (
	"math"

	"github.com/tinylib/msgp/msgp"
)

// Bounds of a FirstBlock, which may be kept, and hashed in many ways.
const (
	maxFirstTokens = 8192 // reading them takes 0.1 ms at most
	maxLookahead   = 64   // tokens
	maxSalt        = 4096 // bytes
)

// FirstBlock is the first block of a prompt as an event tells it: what its hash depends on.
type FirstBlock struct {
	Hash   []byte  // as in Blocks.Hashes
	Tokens []int64 // of the block; with Pairs also the one behind it
	Pairs  bool    // the tokens came in pairs, as SGLang sends them with EAGLE
	// Lookahead are the tokens behind the block that vLLM says its hash covers.
	Lookahead []int64
	Salt      string // the request's cache salt, "" without
}

// NumTokens returns how many tokens the block has.
func (b *FirstBlock) NumTokens() int {
	if b.Pairs {
		return len(b.Tokens) - 1
	}
	return len(b.Tokens)
}

// rawFields are fields of an event as they came, nil if they did not.
type rawFields struct{ tokens, lookahead, extraKeys, salt, loraID, remaining []byte }

// field returns where the value of a key is kept, nil if it is not.
func (r *rawFields) field(key []byte) *[]byte {
	switch string(key) {
	case "token_ids":
		return &r.tokens
	case "lookahead_token_ids":
		return &r.lookahead
	case "extra_keys":
		return &r.extraKeys
	case "cache_salt":
		return &r.salt
	case "lora_id":
		return &r.loraID
	case remainingKey:
		return &r.remaining
	}
	return nil
}

// ReadFirstBlock reads the first block of a prompt, with its tokens, from e. It returns false if e has none, or one whose
// hash depends on what events do not tell: an adapter, an image or embeddings. So is one with a longer salt or lookahead than
// engines have. The memory of b is reused; its hash
// is borrowed as e is.
func (e *Event) ReadFirstBlock(b *FirstBlock) bool {
	n := e.BlockSize
	if e.Kind != KindStored || e.Hashes.Len() == 0 || len(e.Parent) > 0 || isUnheld(&e.Tier) || n <= 0 || n > maxFirstTokens {
		return false
	}
	if e.LoRAName != "" || len(e.raw.loraID) > 0 && !msgp.IsNil(e.raw.loraID) || len(e.raw.tokens) == 0 {
		return false
	}
	numTokens, ids, err := elements(msgp.ReadArrayHeaderBytes(e.raw.tokens))
	if err != nil || int64(numTokens) != n*int64(e.Hashes.Len()) { // otherwise the first blocks are masked
		return false
	}
	b.Hash, b.Salt, b.Lookahead = e.Hashes.At(0), "", b.Lookahead[:0]
	return b.readTokens(ids, int(n)) && b.readSalt(e) && b.readLookahead(e.raw.lookahead)
}

// readTokens reads the first n token ids, or pairs of them.
func (b *FirstBlock) readTokens(ids []byte, n int) (ok bool) {
	b.Tokens, b.Pairs = b.Tokens[:0], msgp.NextType(ids) == msgp.ArrayType
	if !b.Pairs {
		b.Tokens, _, ok = appendIDs(b.Tokens, ids, n)
		return ok
	}
	for i := range n {
		size, rest, err := elements(msgp.ReadArrayHeaderBytes(ids))
		if err != nil || size != 2 {
			return false
		}
		if i > 0 { // its first token is the second of the pair before
			if rest, err = skip(rest, 0); err != nil {
				return false
			}
			size = 1
		}
		if b.Tokens, ids, ok = appendIDs(b.Tokens, rest, size); !ok {
			return false
		}
	}
	return true
}

// appendIDs appends n token ids of ids to dst.
func appendIDs(dst []int64, ids []byte, n int) (tokens []int64, rest []byte, ok bool) {
	for range n {
		id, rest, err := readInt(ids, -1, math.MaxInt64)
		if err != nil || id < 0 {
			return dst, nil, false
		}
		dst, ids = append(dst, id), rest
	}
	return dst, ids, true
}

// readSalt reads the salt: SGLang has a field for it, and with vLLM it is the only extra key of the block. It returns
// false if there are others.
func (b *FirstBlock) readSalt(e *Event) bool {
	if len(e.raw.salt) > 0 && !msgp.IsNil(e.raw.salt) {
		return b.setSalt(e.raw.salt)
	}
	if len(e.raw.extraKeys) == 0 || msgp.IsNil(e.raw.extraKeys) {
		return true
	}
	blocks, keys, err := elements(msgp.ReadArrayHeaderBytes(e.raw.extraKeys))
	if err != nil || blocks == 0 {
		return err == nil
	}
	if msgp.IsNil(keys) {
		return true
	}
	n, key, err := elements(msgp.ReadArrayHeaderBytes(keys))
	if err != nil || n != 1 {
		return err == nil && n == 0
	}
	return b.setSalt(key)
}

func (b *FirstBlock) setSalt(text []byte) bool {
	salt, _, err := readString(text)
	if err != nil || len(salt) > maxSalt {
		return false
	}
	b.Salt = string(salt)
	return true
}

// readLookahead reads the tokens behind the first block: those of each block are a list.
func (b *FirstBlock) readLookahead(lists []byte) (ok bool) {
	if len(lists) == 0 || msgp.IsNil(lists) {
		return true
	}
	blocks, list, err := elements(msgp.ReadArrayHeaderBytes(lists))
	if err != nil || blocks == 0 {
		return false
	}
	n, ids, err := elements(msgp.ReadArrayHeaderBytes(list))
	if err != nil || n > maxLookahead {
		return false
	}
	b.Lookahead, _, ok = appendIDs(b.Lookahead, ids, n)
	return ok
}
