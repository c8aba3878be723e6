package events

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
)

type (
	array []any
	pairs []any // a map: key, value, key, value
)

// pack encodes a value.
func pack(v any) []byte { return appendPacked(nil, v) }

func appendPacked(b []byte, v any) []byte {
	switch v := v.(type) {
	case array:
		b = msgp.AppendArrayHeader(b, uint32(len(v)))
		for _, element := range v {
			b = appendPacked(b, element)
		}
		return b
	case pairs:
		b = msgp.AppendMapHeader(b, uint32(len(v)/2))
		for _, element := range v {
			b = appendPacked(b, element)
		}
		return b
	case msgp.Raw:
		return append(b, v...)
	}
	b, err := msgp.AppendIntf(b, v)
	if err != nil {
		panic(err)
	}
	return b
}

// unhex returns the bytes of a text.
func unhex(text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return b
}

// decoded is an event that owns all that it has.
type decoded struct {
	Event
	HashLen int
	Hashes  []string
	Parent  string
}

// decodeAll returns copies of the events of a payload.
func decodeAll(d *Decoder, payload []byte) ([]decoded, Batch, error) {
	var out []decoded
	batch, err := d.Decode(payload, func(e *Event) error {
		c := decoded{Event: *e, HashLen: e.Hashes.HashLen(), Parent: hex.EncodeToString(e.Parent)}
		c.Event.Hashes, c.Event.Parent, c.Event.raw = coordinator.Hashes{}, nil, rawFields{}
		e.ReadFirstBlock(new(FirstBlock)) // whatever the fields have
		for _, h := range e.Hashes.All() {
			c.Hashes = append(c.Hashes, hex.EncodeToString(h))
		}
		out = append(out, c)
		return nil
	})
	return out, batch, err
}

// event returns what is decoded of an event that says no more than its kind and hashes.
func event(kind Kind, hashes ...string) decoded {
	d := decoded{Event: Event{Kind: kind, Blocks: Blocks{Group: NoGroup, SlidingWindow: -1}}, Hashes: hashes}
	if len(hashes) > 0 {
		d.HashLen = len(hashes[0]) / 2
	}
	return d
}

// with returns d as f changes it.
func (d decoded) with(f func(*decoded)) decoded {
	f(&d)
	return d
}

const (
	hash1 = "0000000000000001"
	hash2 = "0000000000000002"
	hash3 = "dab89baa7b5857c0"
)

// sampleBatch is a batch with one event.
func sampleBatch(event any) []byte { return pack(array{1.5, array{event}, 0}) }

// fullStored has all fields of vLLM 0.33 and SGLang 0.5.23.
var fullStored = pairs{
	"type", "BlockStored",
	"block_hashes", array{1, 2},
	"parent_block_hash", uint64(0xdab89baa7b5857c0),
	"token_ids", array{1, 200, 40_000, 150_000},
	"block_size", 2,
	"lora_id", nil,
	"medium", "CPU",
	"lora_name", "adapter",
	"extra_keys", array{array{"adapter", array{"image", -4}, []byte{1, 2}}, nil},
	"group_idx", 7,
	"kv_cache_spec_kind", "sliding_window",
	"kv_cache_spec_sliding_window", 4096,
	"locality", "LOCAL",
	"ownership", "tier",
	"lookahead_token_ids", array{array{9}, array{}},
	"cache_salt", "salt",
}

var wantFull = event(KindStored, hash1, hash2).with(func(d *decoded) {
	d.Parent, d.BlockSize, d.Group, d.LoRAName = hash3, 2, 7, "adapter"
	d.Tier = Tier{Medium: "CPU", Locality: "LOCAL", Ownership: "tier"}
	d.SpecKind, d.SlidingWindow = "sliding_window", 4096
})

// reversed returns a map with its pairs in the other order.
func reversed(m pairs) pairs {
	var out pairs
	for i := len(m) - 2; i >= 0; i -= 2 {
		out = append(out, m[i], m[i+1])
	}
	return out
}

// goldenEvents are events and what is decoded of them.
var goldenEvents = []struct {
	name  string
	event any
	want  decoded
}{
	{"every field", fullStored, wantFull},
	{"the type last", reversed(fullStored), wantFull},
	{"unknown keys", append(append(pairs{"new", array{pairs{"a", array{nil, true, 1.5}}}}, fullStored...), "newer", 1), wantFull},
	{"an unknown key twice", append(pairs{"new", 1, "new", 2}, fullStored...), wantFull},
	{"array of vLLM, all elements",
		array{"BlockStored", array{1}, nil, array{1, 2, 3, 4}, 4, nil, "GPU", "adapter", array{nil}, 2, "mamba", 64},
		event(KindStored, hash1).with(func(d *decoded) {
			d.BlockSize, d.Tier.Medium, d.LoRAName, d.Group, d.SpecKind, d.SlidingWindow = 4, "GPU", "adapter", 2, "mamba", 64
		})},
	{"array with elements that are not known",
		array{"BlockRemoved", array{1}, "GPU", 2, array{"new"}, pairs{"newer", 1}},
		event(KindRemoved, hash1).with(func(d *decoded) { d.Group, d.Tier.Medium = 2, "GPU" })},
	{"array that ends early", array{"BlockStored", array{1}}, event(KindStored, hash1)},
	{"array of SGLang",
		array{"BlockStored", array{-1, 1}, -2, array{}, 1, nil, "DISK"},
		event(KindStored, "ffffffffffffffff", hash1).with(func(d *decoded) {
			d.Parent, d.BlockSize, d.Tier.Medium = "fffffffffffffffe", 1, "DISK"
		})},
	{"array of SGLang with metadata",
		array{"BlockStored", array{1}, nil, array{}, 1, nil, "GPU", pairs{"new", array{}, "cache_salt", "salt"}},
		event(KindStored, hash1).with(func(d *decoded) { d.BlockSize, d.Tier.Medium = 1, "GPU" })},
	{"removed", pairs{"type", "BlockRemoved", "block_hashes", array{2}, "medium", nil}, event(KindRemoved, hash2)},
	{"a medium that is no UTF-8", pairs{"type", "BlockRemoved", "block_hashes", array{2}, "medium", "a\xff"}, event(KindRemoved, hash2).with(func(d *decoded) { d.Tier.Medium = "a?" })},
	{"cleared, map", pairs{"type", "AllBlocksCleared"}, event(KindCleared)},
	{"cleared, array", array{"AllBlocksCleared"}, event(KindCleared)},
	{"cleared, with more", pairs{"block_hashes", 1, "type", "AllBlocksCleared"}, event(KindCleared)},
	{"unknown, map", pairs{"block_hashes", "no hashes", "type", "BlockMoved", "group_idx", -1}, event(KindUnknown)},
	{"unknown, array", array{"BlockMoved", 1, array{2}}, event(KindUnknown)},
	{"no hashes", pairs{"type", "BlockStored", "block_hashes", array{}}, event(KindStored)},
	{"integers of every length",
		pairs{"type", "BlockRemoved", "block_hashes", array{
			127, 255, 65535, 1 << 16, int64(1 << 32), uint64(math.MaxUint64), -32, -128, math.MinInt16, math.MinInt32, int64(math.MinInt64),
			msgp.Raw{0xd0, 5}, msgp.Raw{0xcf, 0, 0, 0, 0, 0, 0, 0, 6}, msgp.Raw{0xd3, 0, 0, 0, 0, 0, 0, 0, 7},
		}},
		event(KindRemoved, "000000000000007f", "00000000000000ff", "000000000000ffff", "0000000000010000",
			"0000000100000000", "ffffffffffffffff", "ffffffffffffffe0", "ffffffffffffff80", "ffffffffffff8000",
			"ffffffff80000000", "8000000000000000", "0000000000000005", "0000000000000006", "0000000000000007")},
	{"bytes", pairs{"type", "BlockStored", "block_hashes", array{[]byte{1, 2}, []byte{3, 4}}, "parent_block_hash", []byte{5, 6}},
		event(KindStored, "0102", "0304").with(func(d *decoded) { d.Parent = "0506" })},
	{"the longest bytes", pairs{"type", "BlockRemoved", "block_hashes", array{make([]byte, 64)}},
		event(KindRemoved, strings.Repeat("00", 64))},
	{"long strings of clients",
		pairs{"type", "BlockStored", "block_hashes", array{}, "lora_name", strings.Repeat("s", 1<<17)},
		event(KindStored).with(func(d *decoded) { d.LoRAName = strings.Repeat("s", 1<<17) })},
}

func TestDecode(t *testing.T) {
	var d Decoder // one for all: nothing of an event may stay
	for _, c := range goldenEvents {
		t.Run(c.name, func(t *testing.T) {
			payload := sampleBatch(c.event)
			got, batch, err := decodeAll(&d, payload)
			require.NoError(t, err)
			clear(payload) // what was decoded outlives it
			require.Equal(t, []decoded{c.want}, got)
			require.Equal(t, Batch{Time: 1.5, Rank: 0}, batch)
		})
	}
	var all array
	var want []decoded
	for _, c := range goldenEvents {
		all, want = append(all, c.event), append(want, c.want)
	}
	got, _, err := decodeAll(&d, pack(array{0, all}))
	require.NoError(t, err)
	require.Equal(t, want, got, "in one batch")

	// A publisher sends new texts with each event.
	for i := range 2*maxTexts + 1 {
		require.NoError(t, d.decodeText(fmt.Sprint(i)))
		require.LessOrEqual(t, len(d.texts), maxTexts)
	}
}

func (d *Decoder) decodeText(salt string) error {
	_, _, err := decodeAll(d, sampleBatch(pairs{"type", "BlockStored", "block_hashes", array{}, "cache_salt", salt}))
	return err
}

func TestDecodeBatches(t *testing.T) {
	cleared := array{pairs{"type", "AllBlocksCleared"}}
	for _, c := range []struct {
		name  string
		batch array
		want  Batch
	}{
		{"without a rank", array{1.5, cleared}, Batch{Time: 1.5, Rank: -1}},
		{"rank nil", array{1.5, cleared, nil}, Batch{Time: 1.5, Rank: -1}},
		{"rank", array{1.5, cleared, 300}, Batch{Time: 1.5, Rank: 300}},
		{"the time is an integer", array{int64(1_700_000_000_000), cleared}, Batch{Time: 1.7e12, Rank: -1}},
		{"the time is short", array{float32(2.5), cleared}, Batch{Time: 2.5, Rank: -1}},
		{"elements that are not known", array{1.5, cleared, 0, "new", pairs{"newer", deep(maxDepth - 1)}}, Batch{Time: 1.5, Rank: 0}},
		{"no events", array{1.5, array{}}, Batch{Time: 1.5, Rank: -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, batch, err := decodeAll(new(Decoder), pack(c.batch))
			require.NoError(t, err)
			require.Len(t, got, len(c.batch[1].(array)))
			require.Equal(t, c.want, batch)
		})
	}
}

// deep returns n arrays in one another.
func deep(n int) msgp.Raw { return append(bytes.Repeat([]byte{0x91}, n-1), 0x90) }

func TestDecodeErrors(t *testing.T) {
	stored := func(key string, value any) []byte {
		return sampleBatch(pairs{"type", "BlockStored", "block_hashes", array{1}, key, value})
	}
	removed := func(hashes any) []byte { return sampleBatch(array{"BlockRemoved", hashes}) }
	metadata := func(value any) []byte {
		return sampleBatch(array{"BlockStored", array{}, nil, array{}, 1, nil, nil, value})
	}
	lies := func(lead byte) msgp.Raw { return msgp.Raw{lead, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff} }
	long := strings.Repeat("x", 257)
	for _, c := range []struct {
		name    string
		payload []byte
		want    string
	}{
		{"nothing", nil, "batch: "},
		{"no array", pack(1), "batch: "},
		{"a short batch", pack(array{1.5}), "batch: 1 elements"},
		{"the time is text", pack(array{"now", array{}}), "time: str, want"},
		{"events are none", pack(array{1.5, nil}), "events: "},
		{"events claim too much", pack(array{1.5, lies(0xdd)}), "events: 4294967295 elements in 2 bytes"},
		{"rank is text", pack(array{1.5, array{}, "0"}), "rank: str, want"},
		{"rank is negative", pack(array{1.5, array{}, -1}), "rank: -1 is not between"},
		{"deep beyond the rank", pack(array{1.5, array{}, 0, deep(16)}), "batch: too many arrays"},
		{"bytes after the batch", append(pack(array{1.5, array{}}), 1, 2), "2 bytes after the batch"},
		{"an event is text", sampleBatch("BlockStored"), "event 0: "},
		{"an event is empty", sampleBatch(array{}), "event 0: an empty array"},
		{"no type", sampleBatch(pairs{"block_hashes", array{}}), "event 0: type: missing"},
		{"the type is a number", sampleBatch(pairs{"type", 1}), "event 0: type: "},
		{"the type is a number, in an array", sampleBatch(array{1}), "event 0: type: "},
		{"a key is a number", sampleBatch(pairs{1, 1, "type", "BlockStored"}), "event 0: key: "},
		{"a key is a number, after the type", sampleBatch(pairs{"type", "BlockStored", 1, 1}), "event 0: key: "},
		{"a map claims too much", sampleBatch(lies(0xdf)), "event 0: 4294967295 elements"},
		{"an array claims too much", sampleBatch(lies(0xdd)), "event 0: 4294967295 elements"},
		{"no hashes", sampleBatch(pairs{"type", "BlockRemoved"}), "event 0: block_hashes: missing"},
		{"no hashes, in an array", sampleBatch(array{"BlockStored"}), "event 0: block_hashes: missing"},
		{"the second event", pack(array{1.5, array{array{"AllBlocksCleared"}, array{}}}), "event 1: an empty array"},
		{"a hash is text", removed(array{1, "2"}), "block_hashes: str, want an integer or bytes"},
		{"a hash is nil", removed(array{nil}), "block_hashes: nil, want"},
		{"hashes are bytes", removed([]byte{1}), "block_hashes: "},
		{"hashes claim too much", removed(lies(0xdd)), "block_hashes: 4294967295 elements"},
		{"too many hashes", removed(msgp.Raw(append(msgp.AppendArrayHeader(nil, maxHashes+1), make([]byte, maxHashes+1)...))), "block_hashes: 4194305 hashes"},
		{"an empty hash", removed(array{[]byte{}}), "block_hashes: a hash of 0 bytes"},
		{"a long hash", removed(array{make([]byte, 65)}), "block_hashes: a hash of 65 bytes"},
		{"two lengths", removed(array{make([]byte, 4), make([]byte, 5)}), "5 bytes beside one of 4"},
		{"an integer beside bytes", removed(array{make([]byte, 4), 1}), "8 bytes beside one of 4"},
		{"a hash claims too much", removed(array{lies(0xc6)}), "block_hashes: "},
		{"a long parent", stored("parent_block_hash", make([]byte, 65)), "parent_block_hash: a hash of 65"},
		{"the parent is text", stored("parent_block_hash", "x"), "parent_block_hash: str, want"},
		{"tokens claim too much", stored("token_ids", lies(0xdd)), "4294967295 elements"},
		{"a negative block size", stored("block_size", -1), "block_size: -1 is not"},
		{"a huge block size", stored("block_size", uint64(math.MaxUint64)), "block_size: "},
		{"the block size is text", stored("block_size", "x"), "block_size: str, want"},
		{"the medium is a number", stored("medium", 1), "medium: "},
		{"the medium is a number, in an array", sampleBatch(array{"BlockStored", array{1}, nil, array{1}, 4, nil, 1}), "medium: "},
		{"a long medium", stored("medium", long), "medium: a string of 257 bytes"},
		{"a long locality", stored("locality", long), "locality: a string"},
		{"a long ownership", stored("ownership", long), "ownership: a string"},
		{"a long kind", stored("kv_cache_spec_kind", long), "kv_cache_spec_kind: a string"},
		{"a string claims too much", stored("lora_name", lies(0xdb)), "lora_name: "},
		{"bytes of an unknown key claim too much", stored("new", lies(0xc6)), "too few bytes left"},
		{"a string of an unknown key claims too much", stored("new", lies(0xdb)), "too few bytes left"},
		{"an extension of an unknown key claims too much", stored("new", lies(0xc9)), "too few bytes left"},
		{"a negative group", stored("group_idx", -1), "group_idx: -1 is not"},
		{"a huge group", stored("group_idx", int64(1<<31)), "group_idx: 2147483648 is not"},
		{"extra keys are deep", stored("extra_keys", deep(maxDepth+1)), "too many arrays"},
		{"an unknown value is deep", stored("new", deep(maxDepth+1)), "too many arrays"},
		{"an unknown value claims too much", stored("new", lies(0xdf)), "4294967295 elements"},
		{"metadata are deep", metadata(pairs{"x", deep(maxDepth + 1)}), "too many"},
		{"metadata claim too much", metadata(lies(0xdf)), "4294967295 elements"},
		{"an invalid first byte", stored("new", msgp.Raw{0xc1}), "event 0: "},
		{"deep without an end", bytes.Repeat([]byte{0x91}, 1<<20), "batch: 1 elements"},
		{"a deep unknown event", sampleBatch(array{"BlockMoved", msgp.Raw(bytes.Repeat([]byte{0x91}, 1<<20))}), "too many arrays"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := decodeAll(new(Decoder), c.payload)
			require.ErrorIs(t, err, ErrPayload)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// A payload that is cut at any byte is refused.
func TestDecodeCut(t *testing.T) {
	var d Decoder
	check := func(payload []byte) error {
		for n := range payload {
			if _, err := d.Decode(payload[:n:n], func(*Event) error { return nil }); !errors.Is(err, ErrPayload) {
				return fmt.Errorf("cut after %d of %d bytes: %v, want an ErrPayload", n, len(payload), err)
			}
		}
		return nil
	}
	for _, c := range goldenEvents[:len(goldenEvents)-1] { // the last one is long
		require.NoError(t, check(sampleBatch(c.event)), c.name)
	}
	conformance.RunKind(t, "events", func(c *recordedCase) conformance.Verdict {
		if payload := unhex(c.Payload); len(payload) < 2000 {
			if err := check(payload); err != nil {
				return conformance.Differs("%v", err)
			}
		}
		return conformance.Verdict{}
	})
}
