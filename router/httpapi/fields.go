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

// maxText bounds one text in bytes. Names have 256, so it is for salts and endpoints.
const maxText = 4096

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

// list is a field with a list. The memory of its elements is reused.
type list struct {
	set    bool
	length int
	max    int // length
}

// read calls add for the first token of each element.
func (l *list) read(dec *jsontext.Decoder, add func(jsontext.Token) error) error {
	if ok, err := begin(dec, &l.set); !ok {
		return err
	}
	token, err := dec.ReadToken()
	if err == nil && token.Kind() != jsontext.KindBeginArray {
		return errType
	}
	for ; err == nil; l.length++ {
		if token, err = dec.ReadToken(); err != nil || token.Kind() == jsontext.KindEndArray {
			return err
		}
		if l.length == l.max {
			return fmt.Errorf("%w: at most %d", errMany, l.max)
		}
		if err = add(token); err != nil {
			return fmt.Errorf("element %d: %w", l.length, err)
		}
	}
	return err
}

// tokenIDs are the token ids of a prompt.
type tokenIDs struct {
	list
	ids []int64
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *tokenIDs) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return t.read(dec, func(token jsontext.Token) error {
		if token.Kind() != jsontext.KindNumber {
			return errType
		}
		id, err := token.Int()
		t.ids = append(t.ids, id)
		return err
	})
}

// hashes are those of a prompt: numbers of 64 bits, with a sign or without, or digests in hex, all of one length.
type hashes struct {
	list
	bytes   []byte // joined
	hashLen int    // of each; 0: there is none
}

// shortHashLen is the length of a hash that is a number, in bytes.
const shortHashLen = 8

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (h *hashes) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return h.read(dec, func(token jsontext.Token) error {
		from := len(h.bytes)
		if err := h.add(token); err != nil {
			return err
		}
		length := len(h.bytes) - from
		if h.length > 0 && length != h.hashLen {
			return fmt.Errorf("a hash of %d bytes after those of %d", length, h.hashLen)
		}
		h.hashLen = length
		return nil
	})
}

// add appends one hash.
func (h *hashes) add(token jsontext.Token) (err error) {
	text := token.String()
	switch token.Kind() {
	case jsontext.KindString:
		return h.addHex(text)
	case jsontext.KindNumber:
	default:
		return errType
	}
	var bits uint64
	if text[0] == '-' {
		var signed int64
		signed, err = strconv.ParseInt(text, 10, 64)
		bits = uint64(signed) //nolint:gosec // the same 64 bits
	} else {
		bits, err = strconv.ParseUint(text, 10, 64)
	}
	h.bytes = binary.BigEndian.AppendUint64(h.bytes, bits)
	return err
}

// addHex appends a hash that is a text in hex.
func (h *hashes) addHex(text string) (err error) {
	if n := len(text); n < 2*shortHashLen || n > 2*netproto.MaxHashLen {
		return fmt.Errorf("a hash in hex has %d to %d bytes", shortHashLen, netproto.MaxHashLen)
	}
	if h.bytes, err = hex.AppendDecode(h.bytes, []byte(text)); err != nil {
		return errors.New("a hash that is no number must be in hex")
	}
	return nil
}
