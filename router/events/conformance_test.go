package events

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
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
	BlockSize int64          `json:"block_size"`
	Group     *int           `json:"group_idx"`
	Medium    string         `json:"medium"`
	Locality  string         `json:"locality"`
	Ownership string         `json:"ownership"`
	LoRAName  string         `json:"lora_name"`
	SpecKind  string         `json:"kv_cache_spec_kind"`
	Window    *int64         `json:"kv_cache_spec_sliding_window"`
	// What is not decoded:
	TokenIDs  any `json:"token_ids"`
	ExtraKeys any `json:"extra_keys"`
	Lookahead any `json:"lookahead_token_ids"`
	CacheSalt any `json:"cache_salt"`
	LoRAID    any `json:"lora_id"`
	SessionID any `json:"session_id"`
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

// decoded returns what is to be decoded.
func (r *recordedEvent) decoded() decoded {
	kinds := map[string]Kind{"BlockStored": KindStored, "BlockRemoved": KindRemoved, "AllBlocksCleared": KindCleared}
	var hashes []string
	for _, h := range r.Hashes {
		hashes = append(hashes, string(h))
	}
	d := event(kinds[r.Type], hashes...)
	d.Parent, d.BlockSize, d.LoRAName, d.SpecKind = string(r.Parent), r.BlockSize, r.LoRAName, r.SpecKind
	d.Tier = Tier{r.Medium, r.Locality, r.Ownership}
	if r.Group != nil {
		d.Group = *r.Group
	}
	if r.Window != nil {
		d.SlidingWindow = *r.Window
	}
	return d
}

// TestConformance decodes payloads of the encoders of all known releases.
func TestConformance(t *testing.T) {
	var d Decoder
	conformance.RunKind(t, "events", func(c *recordedCase) conformance.Verdict {
		got, batch, err := decodeAll(&d, unhex(c.Payload))
		for i, e := range got {
			if i >= len(c.Events) {
				return conformance.Differs("event %d: %+v", i, e)
			}
			want := c.Events[i].decoded()
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
