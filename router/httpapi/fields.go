package httpapi

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/hitline/hitline/netproto"
)

const (
	// maxTokens is a prompt of a million token ids: 8 MiB in memory while it is answered.
	maxTokens = 1 << 20
	// maxHashes takes as much as maxTokens, with digests of 32 bytes.
	maxHashes = 1 << 18
	// maxText bounds one text in bytes. Names have 256, so it is for salts.
	maxText = 4096
)

// begin reports whether a value follows for a field, and sets set. null is as if the field were not there. It fails for a
// second value.
func begin(dec *jsontext.Decoder, set *bool) (bool, error) {
	if dec.PeekKind() == jsontext.KindNull {
		_, err := dec.ReadToken()
		return false, err
	}
	if *set {
		return false, errTwice
	}
	*set = true
	return true, nil
}

// refused is a field that may have no value: null, an empty text, or a list of nulls.
type refused struct{}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (*refused) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case jsontext.KindNull, jsontext.KindString:
		if token, err := dec.ReadToken(); err != nil || token.Kind() == jsontext.KindNull || token.String() == "" {
			return err
		}
	case jsontext.KindBeginArray:
		return readList(dec, new(bool), maxTokens, func(_ int, token jsontext.Token) error {
			if token.Kind() != jsontext.KindNull {
				return errOther
			}
			return nil
		})
	}
	return errOther
}

// refusedID may also be 0: engines number adapters from 1 on.
type refusedID struct{ refused }

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (r *refusedID) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != jsontext.KindNumber {
		return r.refused.UnmarshalJSONFrom(dec)
	}
	if token, err := dec.ReadToken(); err != nil || token.String() == "0" {
		return err
	}
	return errOther
}

// field is a field with one value.
type field[T string | int64 | bool] struct {
	set   bool
	value T // the zero value without one
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (f *field[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if ok, err := begin(dec, &f.set); !ok {
		return err
	}
	if kind := dec.PeekKind(); kind == jsontext.KindBeginArray || kind == jsontext.KindBeginObject {
		return errType // which would be read to its end
	}
	if err := json.UnmarshalDecode(dec, &f.value); err != nil {
		return err
	}
	if text, ok := any(f.value).(string); ok && len(text) > maxText {
		return errLong
	}
	return nil
}

// Errors of an element of a list.
var (
	errID   = errors.New("is no token id; give a whole number of 64 bits")
	errHash = fmt.Errorf("is no hash; give a whole number of 64 bits, or hex of %d to %d bytes", shortHashLen, netproto.MaxHashLen)
)

// readList reads the elements of a list: add gets the first token of each. At most limit are possible.
func readList(dec *jsontext.Decoder, set *bool, limit int, add func(n int, token jsontext.Token) error) error {
	if ok, err := begin(dec, set); !ok {
		return err
	}
	token, err := dec.ReadToken()
	if err == nil && token.Kind() != jsontext.KindBeginArray {
		return errType
	}
	for n := 0; err == nil; n++ {
		if token, err = dec.ReadToken(); err != nil || token.Kind() == jsontext.KindEndArray {
			return err
		}
		if n == limit {
			return fmt.Errorf("%w: it may have %d", errMany, limit)
		}
		if err = add(n, token); err != nil {
			return fmt.Errorf("element %d %w", n, err)
		}
	}
	return err
}

// tokenIDs are the token ids of a prompt. Their memory is reused.
type tokenIDs struct {
	set bool
	ids []int64
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *tokenIDs) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readList(dec, &t.set, maxTokens, func(_ int, token jsontext.Token) error {
		if token.Kind() != jsontext.KindNumber {
			return errID
		}
		id, err := token.Int()
		if err != nil {
			return errID
		}
		t.ids = append(t.ids, id)
		return nil
	})
}

// hashes are those of a prompt: numbers of 64 bits, with a sign or without, or digests in hex, all of one length. Their
// memory is reused.
type hashes struct {
	set     bool
	bytes   []byte // joined
	hashLen int    // of each; 0: there is none
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (h *hashes) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readList(dec, &h.set, maxHashes, func(n int, token jsontext.Token) (err error) {
		from := len(h.bytes)
		if h.bytes, err = appendHash(h.bytes, token); err != nil {
			return errHash
		}
		length := len(h.bytes) - from
		if n > 0 && length != h.hashLen {
			return fmt.Errorf("has %d bytes, and those before it %d; give hashes of one length", length, h.hashLen)
		}
		h.hashLen = length
		return nil
	})
}

// shortHashLen is the length of a hash that is a number, in bytes.
const shortHashLen = 8

// appendHash appends one hash.
func appendHash(hashes []byte, token jsontext.Token) ([]byte, error) {
	switch text := token.String(); {
	case token.Kind() == jsontext.KindNumber && text[0] == '-':
		signed, err := strconv.ParseInt(text, 10, 64)
		return binary.BigEndian.AppendUint64(hashes, uint64(signed)), err //nolint:gosec // the same 64 bits
	case token.Kind() == jsontext.KindNumber:
		bits, err := strconv.ParseUint(text, 10, 64)
		return binary.BigEndian.AppendUint64(hashes, bits), err
	case token.Kind() != jsontext.KindString || len(text) < 2*shortHashLen || len(text) > 2*netproto.MaxHashLen:
		return hashes, errHash
	default:
		return hex.AppendDecode(hashes, []byte(text))
	}
}
