package events

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/hitline/hitline/internal/conformance"
)

// recordedCase is a batch as an engine's own classes encoded it.
type recordedCase struct {
	Time    float64         `json:"time"`
	Rank    *int            `json:"rank"`
	Events  []recordedEvent `json:"events"`
	Payload string          `json:"payload"`
}

// recordedEvent is what was given to the class of an event.
type recordedEvent struct {
	Type      string         `json:"type"`
	Hashes    []recordedHash `json:"block_hashes"`
	Parent    recordedHash   `json:"parent_block_hash"`
	TokenIDs  recordedTokens `json:"token_ids"`
	BlockSize int64          `json:"block_size"`
	Group     *int           `json:"group_idx"`
	Medium    string         `json:"medium"`
	Locality  string         `json:"locality"`
	Ownership string         `json:"ownership"`
	LoRAName  string         `json:"lora_name"`
	CacheSalt string         `json:"cache_salt"`
	SpecKind  string         `json:"kv_cache_spec_kind"`
	Window    *int64         `json:"kv_cache_spec_sliding_window"`
	ExtraKeys recordedKeys   `json:"extra_keys"`
	Lookahead [][]uint32     `json:"lookahead_token_ids"`
	LoRAID    any            `json:"lora_id"`    // not decoded
	SessionID any            `json:"session_id"` // not decoded
}

// recordedHash is a hash in hexadecimal: of bytes, or of an integer of either sign as 8 bytes.
type recordedHash string

func (h *recordedHash) UnmarshalJSON(text []byte) (err error) {
	var n uint64
	switch text[0] {
	case 'n': // null
		return nil
	case '{':
		var digits struct{ Hex string }
		err = json.Unmarshal(text, &digits)
		*h = recordedHash(digits.Hex)
		return err
	case '-':
		var i int64
		i, err = strconv.ParseInt(string(text), 10, 64)
		n = uint64(i)
	default:
		n, err = strconv.ParseUint(string(text), 10, 64)
	}
	*h = recordedHash(fmt.Sprintf("%016x", n))
	return err
}

// recordedTokens are token ids, or pairs of them.
type recordedTokens struct {
	ids      []uint32
	bigrams  bool
	overflow bool // some have over 32 bits
}

func (r *recordedTokens) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	r.bigrams = bytes.HasPrefix(text, []byte("[["))
	for _, id := range strings.FieldsFunc(string(text), func(c rune) bool { return strings.ContainsRune("[], ", c) }) {
		n, err := strconv.ParseUint(id, 10, 32)
		r.overflow = r.overflow || err != nil
		r.ids = append(r.ids, uint32(n))
	}
	return nil
}

// recordedKeys are extra keys as JSON has them, with integers of any size.
type recordedKeys struct{ any }

func (r *recordedKeys) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(&r.any)
}

// decoded returns what is to be decoded, but for the extra keys.
func (r *recordedEvent) decoded() decoded {
	kinds := map[string]Kind{"BlockStored": KindStored, "BlockRemoved": KindRemoved, "AllBlocksCleared": KindCleared}
	var hashes []string
	for _, h := range r.Hashes {
		hashes = append(hashes, string(h))
	}
	d := event(kinds[r.Type], hashes...)
	d.Parent, d.BlockSize, d.LoRAName, d.CacheSalt, d.SpecKind = string(r.Parent), r.BlockSize, r.LoRAName, r.CacheSalt, r.SpecKind
	d.Tier = Tier{r.Medium, r.Locality, r.Ownership}
	d.TokenIDs, d.Bigrams, d.Lookahead = r.TokenIDs.ids, r.TokenIDs.bigrams, r.Lookahead
	if r.Group != nil {
		d.Group = *r.Group
	}
	if r.Window != nil {
		d.SlidingWindow = *r.Window
	}
	return d
}

// asRecorded returns extra keys in the recorded form of JSON.
func asRecorded(v any) any {
	switch v := v.(type) {
	case []byte:
		return map[string]any{"hex": hex.EncodeToString(v)}
	case []any:
		for i := range v {
			v[i] = asRecorded(v[i])
		}
	}
	return v
}

// sameExtraKeys compares extra keys as they were decoded with the recorded ones.
func sameExtraKeys(got [][]any, want recordedKeys) bool {
	for i := range got {
		asRecorded(got[i])
	}
	a, errA := json.Marshal(got)
	var back recordedKeys
	errB := json.Unmarshal(a, &back)
	return errors.Join(errA, errB) == nil && reflect.DeepEqual(back, want)
}

// TestConformance decodes payloads of the encoders of all known releases.
func TestConformance(t *testing.T) {
	var d Decoder
	conformance.RunKind(t, "events", func(c *recordedCase) conformance.Verdict {
		got, batch, err := decodeAll(&d, unhex(c.Payload))
		for i, e := range got {
			if i >= len(c.Events) || !sameExtraKeys(e.ExtraKeys, c.Events[i].ExtraKeys) {
				return conformance.Differs("event %d: %+v", i, e)
			}
			got[i].ExtraKeys = nil
			want := c.Events[i].decoded()
			if c.Events[i].TokenIDs.overflow {
				if !errors.Is(err, ErrPayload) {
					return conformance.Differs("token ids of over 32 bits: %v", err)
				}
				return conformance.Verdict{} // the rest is not decoded
			}
			if !reflect.DeepEqual(got[i], want) {
				return conformance.Differs("event %d: %+v, want %+v", i, got[i], want)
			}
		}
		want := Batch{Time: c.Time, Rank: -1}
		if c.Rank != nil {
			want.Rank = *c.Rank
		}
		if err != nil || len(got) != len(c.Events) || batch != want {
			return conformance.Differs("%d events, %+v, %v; want %d, %+v", len(got), batch, err, len(c.Events), want)
		}
		return conformance.Verdict{}
	})
}
