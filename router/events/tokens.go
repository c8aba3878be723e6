package events

import (
	"errors"
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// ErrTokenID is wrapped by the errors about token ids that do not fit into 32 bits.
var ErrTokenID = errors.New("events: a token id does not fit into 32 bits")

// TokenIDs appends the token ids of the blocks, in order, to dst. Of bigrams it appends both.
// Some events have fewer or more tokens than blocks times BlockSize. It fails with an
// ErrTokenID; negative ids do not fit either.
func (e *Event) TokenIDs(dst []uint32) ([]uint32, error) {
	if len(e.tokens) == 0 {
		return dst, nil
	}
	n, b, err := readArrayHeader(e.tokens)
	for ; n > 0 && err == nil; n-- {
		if e.Bigrams {
			if dst, b, err = appendTokenID(dst, b[1:]); err != nil {
				break
			}
		}
		dst, b, err = appendTokenID(dst, b)
	}
	return dst, err
}

// LookaheadTokenIDs returns, for each block, the token ids after it that its hash covers too.
// It returns nil if the event has none. It fails with an ErrTokenID or an ErrPayload.
func (e *Event) LookaheadTokenIDs() ([][]uint32, error) {
	if len(e.lookahead) == 0 {
		return nil, nil
	}
	n, b, err := readArrayHeader(e.lookahead)
	lists := make([][]uint32, 0, n)
	for range n {
		var size int
		if size, b, err = readArrayHeader(b); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrPayload, fieldLookahead, err)
		}
		ids := make([]uint32, 0, size)
		for range size {
			if ids, b, err = appendTokenID(ids, b); err != nil {
				return nil, err
			}
		}
		lists = append(lists, ids)
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
	n, b, err := readArrayHeader(e.extraKeys)
	blocks := make([][]any, 0, n)
	for range n {
		if msgp.IsNil(b) {
			blocks, b = append(blocks, nil), b[1:]
			continue
		}
		var value any
		if value, b, err = msgp.ReadIntfBytes(b); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrPayload, fieldExtraKeys, err)
		}
		keys, ok := value.([]any)
		if !ok {
			return nil, fmt.Errorf("%w: %s: %T, want an array", ErrPayload, fieldExtraKeys, value)
		}
		blocks = append(blocks, keys)
	}
	return blocks, err
}

// appendTokenID reads one token id and appends it to dst.
func appendTokenID(dst []uint32, b []byte) ([]uint32, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.IntType, msgp.UintType:
	default:
		return dst, nil, fmt.Errorf("%w: token id: %w", ErrPayload, wrongType(b, "an integer"))
	}
	id, rest, err := msgp.ReadInt64Bytes(b)
	if err != nil || id < 0 || id > math.MaxUint32 {
		return dst, nil, ErrTokenID
	}
	return append(dst, uint32(id)), rest, nil
}

// readTokens returns the bytes of the token ids, which are integers or, in bigrams, arrays of
// two.
func readTokens(b []byte) (tokens []byte, bigrams bool, rest []byte, err error) {
	if msgp.IsNil(b) {
		return nil, false, b[1:], nil
	}
	n, rest, err := readArrayHeader(b)
	if err != nil {
		return nil, false, nil, err
	}
	if bigrams = len(rest) > 0 && n > 0 && rest[0] == leadArray2; bigrams {
		rest, err = skipBigrams(rest, n)
	} else {
		rest, err = skipInts(rest, n)
	}
	if err != nil {
		return nil, false, nil, err
	}
	return b[: len(b)-len(rest) : len(b)-len(rest)], bigrams, rest, nil
}

// skipBigrams skips n arrays of two integers.
func skipBigrams(b []byte, n int) (rest []byte, err error) {
	for ; n > 0; n-- {
		if len(b) == 0 || b[0] != leadArray2 {
			return nil, wrongType(b, "an array of two")
		}
		if b, err = skipInts(b[1:], 2); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// skipInts skips n integers. Tokens are most of a payload: it takes two thirds of the time of
// msgp.Skip, which accepts other types too.
func skipInts(b []byte, n int) ([]byte, error) {
	at := 0
	for ; n > 0; n-- {
		if at >= len(b) {
			return nil, msgp.ErrShortBytes
		}
		size := intSizes[b[at]]
		if size == 0 {
			return nil, wrongType(b[at:], "an integer")
		}
		at += int(size)
	}
	if at > len(b) {
		return nil, msgp.ErrShortBytes
	}
	return b[at:], nil
}

// intSizes are the bytes of an integer by its first byte, 0 if it is none.
var intSizes = func() (sizes [256]uint8) {
	for lead := range sizes {
		switch {
		case lead <= 0x7f, lead >= 0xe0: // the integer itself
			sizes[lead] = 1
		case lead >= 0xcc && lead <= 0xcf, lead >= 0xd0 && lead <= 0xd3: // 1, 2, 4 or 8 bytes
			sizes[lead] = 1 + 1<<(lead&3)
		}
	}
	return sizes
}()
