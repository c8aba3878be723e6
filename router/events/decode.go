package events

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/hitline/hitline/coordinator"
)

// ErrPayload is wrapped by the errors of Decode.
var ErrPayload = errors.New("not a batch of KV events")

const (
	maxHashLen = 64       // bytes of one block hash; SHA-512 has 64
	maxHashes  = 1 << 22  // of one event: 64 million tokens in blocks of 16
	maxTexts   = 128      // strings that a Decoder keeps
	maxKept    = 64 << 10 // bytes of hashes that a Decoder, and an applier, keeps for the next batch
)

// Decoder decodes payloads. Its zero value is ready. One goroutine at a time.
//
// It accepts events as maps (vLLM, SGLang) and as arrays (their older releases), and keys in any
// order. It skips unknown keys, and array elements beyond those it knows. Bytes after the batch are
// an error. Of a key that comes twice the last value counts. Token ids, lookahead ids, extra keys and
// salts are skipped, see Event.ReadFirstBlock. Values may have arrays and maps 13 deep, and an event 4 million
// hashes of at most 64 bytes. Memory is taken for what a payload has, not for the lengths that it claims.
type Decoder struct {
	event     Event
	hasHashes bool   // the event names hashes, if only none
	hashes    []byte // of the event, joined
	parent    []byte
	texts     map[string]string // strings that repeat are not allocated anew
	// reserve, if set, is called before an event takes these bytes, and fails if they may not be taken. They are free
	// when Decode returns.
	reserve func(bytes int) error
}

// Decode calls each for the events of a payload, in order. Event and its slices are borrowed:
// they are valid until each returns; its strings stay valid. It fails with an ErrPayload that
// names the event and its key, possibly after some calls, or with the error of each.
func (d *Decoder) Decode(payload []byte, each func(*Event) error) (Batch, error) {
	defer func() { d.hashes = emptied(d.hashes) }()
	batch := Batch{Rank: -1}
	malformed := func(what string, err error) (Batch, error) {
		return batch, fmt.Errorf("%w: %s: %w", ErrPayload, what, err)
	}
	n, b, err := elements(msgp.ReadArrayHeaderBytes(payload))
	if err == nil && n < 2 {
		err = fmt.Errorf("%d elements, want a time and events", n)
	}
	if err != nil {
		return malformed("batch", err)
	}
	if batch.Time, b, err = readTime(b); err != nil {
		return malformed("time", err)
	}
	numEvents, b, err := elements(msgp.ReadArrayHeaderBytes(b))
	if err != nil {
		return malformed("events", err)
	}
	for i := range numEvents {
		if b, err = d.decodeEvent(b); err != nil {
			return malformed(fmt.Sprintf("event %d", i), err)
		}
		if err := each(&d.event); err != nil {
			return batch, err
		}
	}
	if n > 2 {
		var rank int64
		if rank, b, err = readInt(b, -1, math.MaxInt32); err != nil {
			return malformed("rank", err)
		}
		batch.Rank = int(rank)
	}
	for i := 3; i < n; i++ {
		if b, err = skip(b, maxDepth); err != nil {
			return malformed("batch", err)
		}
	}
	if len(b) > 0 {
		return batch, fmt.Errorf("%w: %d bytes after the batch", ErrPayload, len(b))
	}
	return batch, nil
}

// decodeEvent reads one event into d.event.
func (d *Decoder) decodeEvent(b []byte) (rest []byte, err error) {
	d.event, d.hasHashes = Event{Blocks: Blocks{Group: NoGroup, SlidingWindow: -1}}, false
	if msgp.NextType(b) == msgp.ArrayType {
		rest, err = d.decodeArray(b)
	} else {
		rest, err = d.decodeMap(b)
	}
	if err == nil && d.event.hasBlocks() && !d.hasHashes {
		err = errors.New("block_hashes: missing")
	}
	if err == nil && d.event.Kind == KindTierCleared && d.event.Tier.Medium == "" {
		err = errors.New("medium: missing")
	}
	return rest, err
}

// The keys of the elements of an event, for engines that send arrays: vLLM up to 0.23, SGLang up
// to 0.5.19. Both have the same order up to the medium, where SGLang's end; its 0.5.18 and 0.5.19
// may add a map in the place of vLLM's lora_name, see readMetadata.
var (
	storedKeys = bytes.Fields([]byte("block_hashes parent_block_hash token_ids block_size lora_id medium lora_name " +
		"extra_keys group_idx kv_cache_spec_kind kv_cache_spec_sliding_window"))
	removedKeys     = bytes.Fields([]byte("block_hashes medium group_idx"))
	tierClearedKeys = [][]byte{[]byte("medium")}
)

// decodeArray reads an event that is an array, headed by its type.
func (d *Decoder) decodeArray(b []byte) ([]byte, error) {
	n, b, err := elements(msgp.ReadArrayHeaderBytes(b))
	if err == nil && n == 0 {
		err = errors.New("an empty array")
	}
	if err == nil {
		b, err = d.readKind(b)
	}
	var keys [][]byte
	switch d.event.Kind {
	case KindStored:
		keys = storedKeys
	case KindRemoved:
		keys = removedKeys
	case KindTierCleared:
		keys = tierClearedKeys
	}
	for i := 0; i < n-1 && err == nil; i++ {
		switch {
		case i >= len(keys):
			b, err = skip(b, maxDepth)
		case string(keys[i]) == "lora_name" && msgp.NextType(b) == msgp.MapType:
			b, err = skip(b, maxDepth)
		default:
			b, err = d.readField(keys[i], b)
		}
	}
	return b, err
}

// decodeMap reads an event that is a map. Engines send its type first.
func (d *Decoder) decodeMap(b []byte) ([]byte, error) {
	n, b, err := elements(msgp.ReadMapHeaderBytes(b))
	if err == nil {
		err = d.findKind(b, n)
	}
	for ; n > 0 && err == nil; n-- {
		var key []byte
		if key, b, err = readString(b); err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		if d.event.hasBlocks() || d.event.Kind == KindTierCleared && string(key) == "medium" {
			b, err = d.readField(key, b)
		} else {
			b, err = skip(b, maxDepth)
		}
	}
	return b, err
}

// findKind sets the kind of an event of n keys, because the meaning of all other keys depends
// on it.
func (d *Decoder) findKind(b []byte, n int) error {
	for range n {
		key, rest, err := readString(b)
		if err != nil {
			return fmt.Errorf("key: %w", err)
		}
		if string(key) == "type" {
			_, err = d.readKind(rest)
			return err
		}
		if b, err = skip(rest, maxDepth); err != nil {
			return err
		}
	}
	return errors.New("type: missing")
}

// readKind reads the type of an event.
func (d *Decoder) readKind(b []byte) ([]byte, error) {
	name, b, err := readString(b)
	if err != nil {
		return nil, fmt.Errorf("type: %w", err)
	}
	switch string(name) {
	case "BlockStored":
		d.event.Kind = KindStored
	case "BlockRemoved":
		d.event.Kind = KindRemoved
	case "AllBlocksCleared":
		d.event.Kind = KindCleared
	case "TierBlocksCleared":
		d.event.Kind = KindTierCleared
	}
	return b, nil
}

// readField reads the value of a key. Unknown ones are skipped.
func (d *Decoder) readField(key, b []byte) (rest []byte, err error) {
	e := &d.event
	switch string(key) {
	case "block_hashes":
		rest, err = d.readHashes(b)
	case "parent_block_hash":
		rest, err = d.readParent(b)
	case "block_size":
		e.BlockSize, rest, err = readInt(b, 0, math.MaxInt64)
	case "kv_cache_spec_sliding_window":
		e.SlidingWindow, rest, err = readInt(b, -1, math.MaxInt64)
	case "group_idx":
		var group int64
		group, rest, err = readInt(b, NoGroup, math.MaxInt32)
		e.Group = int(group)
	case "medium":
		if e.Tier.Medium, rest, err = d.readText(b, MaxName); strings.EqualFold(e.Tier.Medium, gpuMedium) {
			e.Tier.Medium = gpuMedium // other engines than vLLM write gpu
		}
	case "locality":
		e.Tier.Locality, rest, err = d.readText(b, MaxName)
	case "ownership":
		e.Tier.Ownership, rest, err = d.readText(b, MaxName)
	case "kv_cache_spec_kind":
		e.SpecKind, rest, err = d.readText(b, MaxName)
	case "lora_name": // clients choose it, so any length is accepted
		e.LoRAName, rest, err = d.readText(b, math.MaxInt)
	default:
		rest, err := skip(b, maxDepth)
		if raw := e.raw.field(key); raw != nil && err == nil {
			*raw = b[:len(b)-len(rest)]
		}
		return rest, err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", string(key), err)
	}
	return rest, nil
}

// readHashes reads the hashes of an event into d.hashes.
func (d *Decoder) readHashes(b []byte) ([]byte, error) {
	n, b, err := elements(msgp.ReadArrayHeaderBytes(b))
	if err != nil {
		return nil, err
	}
	if n > maxHashes {
		return nil, fmt.Errorf("%d hashes, at most %d are accepted", n, maxHashes)
	}
	hashes, hashLen := d.hashes[:0], 0
	for i := range n {
		start := len(hashes)
		if hashes, b, err = appendHash(hashes, b); err != nil {
			return nil, err
		}
		switch length := len(hashes) - start; {
		case i == 0:
			hashLen = length
			if hashes, err = d.growHashes(hashes, n-1, b); err != nil {
				return nil, err
			}
		case length != hashLen:
			return nil, fmt.Errorf("a hash of %d bytes beside one of %d", length, hashLen)
		}
	}
	d.hashes, d.hasHashes = hashes, true
	d.event.Hashes = coordinator.NewHashes(hashes, hashLen)
	return b, nil
}

// growHashes returns hashes, which has the first one, with capacity for n more. b has these.
func (d *Decoder) growHashes(hashes []byte, n int, b []byte) ([]byte, error) {
	more := min(n*len(hashes), max(len(b), 8*n)) // as bytes no more than there are; their number is a claim
	if d.reserve != nil {
		if err := d.reserve(len(hashes) + more + n); err != nil { // n bytes are those of applier.fresh
			return nil, err
		}
	}
	return slices.Grow(hashes, more), nil
}

// readParent reads the hash before the first block, which may be nil.
func (d *Decoder) readParent(b []byte) ([]byte, error) {
	if msgp.IsNil(b) {
		return b[1:], nil
	}
	parent, b, err := appendHash(d.parent[:0], b)
	d.parent, d.event.Parent = parent, parent
	return b, err
}

// appendHash appends one hash: its bytes, or an integer as 8 bytes, big-endian.
func appendHash(dst, b []byte) (hash, rest []byte, err error) {
	if len(b) >= 9 && (b[0] == leadUint64 || b[0] == leadInt64) {
		return append(dst, b[1:9]...), b[9:], nil
	}
	switch typ := msgp.NextType(b); typ {
	case msgp.BinType:
		bin, rest, err := readBytes(b)
		if err == nil && (len(bin) == 0 || len(bin) > maxHashLen) {
			err = fmt.Errorf("a hash of %d bytes, want 1 to %d", len(bin), maxHashLen)
		}
		return append(dst, bin...), rest, err
	case msgp.UintType:
		u, rest, err := msgp.ReadUint64Bytes(b)
		return binary.BigEndian.AppendUint64(dst, u), rest, err
	case msgp.IntType:
		i, rest, err := msgp.ReadInt64Bytes(b)
		return binary.BigEndian.AppendUint64(dst, uint64(i)), rest, err
	default:
		return dst, nil, wrongType(b, "an integer or bytes")
	}
}

// readText reads a string of at most limit bytes; nil is the empty one.
func (d *Decoder) readText(b []byte, limit int) (string, []byte, error) {
	if msgp.IsNil(b) {
		return "", b[1:], nil
	}
	text, b, err := readString(b)
	if err == nil && len(text) > limit {
		err = fmt.Errorf("a string of %d bytes, at most %d are accepted", len(text), limit)
	}
	if err != nil || len(text) > MaxName {
		return string(text), b, err
	}
	s, known := d.texts[string(text)]
	if !known {
		if len(d.texts) >= maxTexts || d.texts == nil { // a publisher may send new ones with each event
			d.texts = make(map[string]string)
		}
		s = strings.ToValidUTF8(string(text), "?") // a checkpoint is in JSON, which would have others in their place
		d.texts[string(text)] = s
	}
	return s, b, nil
}
