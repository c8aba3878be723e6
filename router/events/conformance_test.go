package events

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/hitline/hitline/internal/conformance"
)

// recordedCase is a batch as an engine's own classes encoded it. Fields are those that were
// given to the class.
type recordedCase struct {
	Time    float64                      `json:"time"`
	Rank    *int                         `json:"rank"`
	Events  []map[string]json.RawMessage `json:"events"`
	Payload string                       `json:"payload"`
}

// TestConformance decodes payloads of the encoders of all known releases.
func TestConformance(t *testing.T) {
	var d Decoder
	conformance.RunKind(t, "events", func(c *recordedCase) conformance.Verdict {
		payload, err := hex.DecodeString(c.Payload)
		if err != nil {
			return conformance.Differs("payload: %v", err)
		}
		i := 0
		batch, err := d.Decode(payload, func(e *Event) error {
			if i >= len(c.Events) {
				return errors.New("more events than were encoded")
			}
			if err := compareEvent(c.Events[i], e); err != nil {
				return fmt.Errorf("event %d: %w", i, err)
			}
			i++
			return nil
		})
		want := Batch{Time: c.Time, Rank: -1}
		if c.Rank != nil {
			want.Rank = *c.Rank
		}
		switch {
		case err != nil:
			return conformance.Differs("%v", err)
		case i != len(c.Events):
			return conformance.Differs("%d events, want %d", i, len(c.Events))
		case batch != want:
			return conformance.Differs("%+v, want %+v", batch, want)
		}
		return conformance.Verdict{}
	})
}

// compareEvent returns how e differs from the fields that were encoded.
func compareEvent(fields map[string]json.RawMessage, e *Event) error {
	f := fieldsOf(fields)
	kinds := map[string]Kind{"BlockStored": KindStored, "BlockRemoved": KindRemoved, "AllBlocksCleared": KindCleared}
	want := map[string]any{
		"type":              kinds[f.text("type")],
		"block_hashes":      f.hashes("block_hashes"),
		"parent_block_hash": f.parent(),
		"block_size":        f.integer("block_size", 0),
		"group_idx":         f.integer("group_idx", NoGroup),
		"tier":              Tier{f.text("medium"), f.text("locality"), f.text("ownership")},
		"lora_name":         f.text("lora_name"),
		"cache_salt":        f.text("cache_salt"),
		"spec_kind":         f.text("kv_cache_spec_kind"),
		"sliding_window":    f.integer("kv_cache_spec_sliding_window", -1),
		"extra_keys":        f.value("extra_keys"),
		"token_ids":         f.tokenIDs(),
		"lookahead":         f.value("lookahead_token_ids"),
	}
	got := map[string]any{
		"type":              e.Kind,
		"block_hashes":      hex.EncodeToString(e.Hashes.Bytes()),
		"parent_block_hash": hex.EncodeToString(e.Parent),
		"block_size":        e.BlockSize,
		"group_idx":         int64(e.Group),
		"tier":              e.Tier,
		"lora_name":         e.LoRAName,
		"cache_salt":        e.CacheSalt,
		"spec_kind":         e.SpecKind,
		"sliding_window":    e.SlidingWindow,
		"extra_keys":        nilIfError(e.ExtraKeys()),
		"token_ids":         tokenIDs(e),
		"lookahead":         nilIfError(e.LookaheadTokenIDs()),
	}
	for name := range want {
		if a, b := text(got[name]), text(want[name]); a != b {
			return fmt.Errorf("%s is %s, want %s", name, a, b)
		}
	}
	if n := len(f.list("block_hashes")); e.Hashes.Len() != n {
		return fmt.Errorf("%d hashes, want %d", e.Hashes.Len(), n)
	}
	return nil
}

// errNotUint32 stands for token ids that do not fit into 32 bits.
const errNotUint32 = "token ids do not fit"

// tokenIDs returns the token ids as JSON has them: pairs if they are bigrams.
func tokenIDs(e *Event) any {
	ids, err := e.TokenIDs(nil)
	switch {
	case err != nil:
		return errNotUint32
	case !e.Bigrams:
		return append([]uint32{}, ids...)
	}
	pairs := [][]uint32{}
	for ; len(ids) > 1; ids = ids[2:] {
		pairs = append(pairs, ids[:2])
	}
	return pairs
}

// nilIfError returns a value in the form of the recorded JSON: nil for none.
func nilIfError[T any](lists []T, err error) any {
	switch {
	case err != nil:
		return err.Error()
	case lists == nil:
		return nil
	}
	return lists
}

// text returns a value as JSON, with bytes in the recorded form.
func text(v any) string {
	out, err := json.Marshal(hexBytes(v))
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func hexBytes(v any) any {
	switch v := v.(type) {
	case []byte:
		return map[string]any{"hex": hex.EncodeToString(v)}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = hexBytes(v[i])
		}
		return out
	case [][]any:
		out := make([]any, len(v))
		for i := range v {
			if v[i] != nil {
				out[i] = hexBytes(v[i])
			}
		}
		return out
	}
	return v
}

// fieldsOf are the fields of an event as JSON.
type fieldsOf map[string]json.RawMessage

// value decodes a field exactly; nil if it is absent.
func (f fieldsOf) value(name string) any {
	if f[name] == nil {
		return nil
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(f[name]))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		panic(err)
	}
	return v
}

func (f fieldsOf) text(name string) string {
	s, _ := f.value(name).(string)
	return s
}

func (f fieldsOf) list(name string) []any {
	l, _ := f.value(name).([]any)
	return l
}

func (f fieldsOf) integer(name string, none int64) int64 {
	n, ok := f.value(name).(json.Number)
	if !ok {
		return none
	}
	i, err := n.Int64()
	if err != nil {
		panic(err)
	}
	return i
}

func (f fieldsOf) hashes(name string) string {
	var out strings.Builder
	for _, h := range f.list(name) {
		out.WriteString(hash(h))
	}
	return out.String()
}

func (f fieldsOf) parent() string { return hash(f.value("parent_block_hash")) }

// tokenIDs returns the token ids, or the error for those that do not fit into 32 bits.
func (f fieldsOf) tokenIDs() any {
	ids := f.list("token_ids")
	for _, id := range flatten(ids) {
		if n, err := id.(json.Number).Int64(); err != nil || n > math.MaxUint32 {
			return errNotUint32
		}
	}
	return append([]any{}, ids...)
}

// flatten returns the elements of lists in a list.
func flatten(list []any) []any {
	var out []any
	for _, v := range list {
		if pair, ok := v.([]any); ok {
			out = append(out, pair...)
		} else {
			out = append(out, v)
		}
	}
	return out
}

// hash returns a recorded hash in hex: bytes, or an integer of either sign as 8 bytes.
func hash(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return v["hex"].(string)
	case json.Number:
		n, ok := new(big.Int).SetString(v.String(), 10)
		if !ok {
			panic(v)
		}
		if n.Sign() < 0 {
			n.Add(n, new(big.Int).Lsh(big.NewInt(1), 64))
		}
		return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, n.Uint64()))
	case nil:
		return ""
	}
	panic(reflect.TypeOf(v))
}
