package events

import (
	"errors"
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// TokenIDs appends the token ids of the blocks, in order, to dst. Of bigrams it appends both. Some events have
// fewer or more tokens than blocks times BlockSize. It fails with an ErrPayload if an id is not one of 32 bits.
func (e *Event) TokenIDs(dst []uint32) ([]uint32, error) {
	if !e.Bigrams {
		dst, _, err := appendIDs(dst, e.tokens)
		return dst, err
	}
	n, b, err := elements(msgp.ReadArrayHeaderBytes(e.tokens))
	for ; n > 0 && err == nil; n-- {
		dst, b, err = appendIDs(dst, b)
	}
	return dst, err
}

// LookaheadTokenIDs returns, for each block, the token ids after it that its hash covers too.
// It returns nil if the event has none. It fails with an ErrPayload.
func (e *Event) LookaheadTokenIDs() ([][]uint32, error) {
	if len(e.lookahead) == 0 {
		return nil, nil
	}
	n, b, err := elements(msgp.ReadArrayHeaderBytes(e.lookahead))
	lists := make([][]uint32, n)
	for i := 0; i < n && err == nil; i++ {
		lists[i], b, err = appendIDs([]uint32{}, b)
	}
	return lists, err
}

// ExtraKeys returns, for each block, what its hash covers beside tokens; nil for a block
// without. A key is a string (LoRA name, salt), bytes, an integer (int64 or uint64), or a list
// of these as []any (multi-modal identifier and offset). What a hostile publisher sends may be of
// any type that msgp.ReadIntfBytes returns. It returns nil if the event has none. It fails with an
// ErrPayload.
func (e *Event) ExtraKeys() ([][]any, error) {
	if len(e.extraKeys) == 0 {
		return nil, nil
	}
	value, _, err := msgp.ReadIntfBytes(e.extraKeys)
	if err != nil {
		return nil, fmt.Errorf("%w: extra keys: %w", ErrPayload, err)
	}
	blocks := make([][]any, len(value.([]any)))
	for i, keys := range value.([]any) {
		list, ok := keys.([]any)
		if !ok && keys != nil {
			return nil, fmt.Errorf("%w: extra keys: %T, want an array", ErrPayload, keys)
		}
		blocks[i] = list
	}
	return blocks, nil
}

// appendIDs appends the token ids of the array that b begins with; empty is no array.
func appendIDs(dst []uint32, b []byte) (ids []uint32, rest []byte, err error) {
	if len(b) == 0 {
		return dst, nil, nil
	}
	n, b, err := elements(msgp.ReadArrayHeaderBytes(b))
	for ; n > 0 && err == nil; n-- {
		var id int64
		if id, b, err = readInt(b, -1, math.MaxUint32); err == nil && id < 0 {
			err = errors.New("nil, want an integer")
		}
		dst = append(dst, uint32(id))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: token ids: %w", ErrPayload, err)
	}
	return dst, b, nil
}
