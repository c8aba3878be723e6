package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/hitline/hitline/coordinator"
	"github.com/tinylib/msgp/msgp"
)

// ErrPayload is wrapped by the errors of Decode and of the accessors of Event.
var ErrPayload = errors.New("events: not a batch of KV events")

const (
	maxHashLen = 64      // bytes of one block hash; SHA-512 has 64
	maxHashes  = 1 << 22 // of one event: 64 million tokens in blocks of 16
)

// Decoder decodes payloads. Its zero value is ready. One goroutine at a time.
//
// It accepts events as maps (vLLM, SGLang) and as arrays (their older releases), and keys in any
// order. It skips unknown keys, and array elements beyond those it knows. A known key that comes
// twice in an event is an error, and so are bytes after the batch. Arrays and maps may be 16 deep,
// and an event may have 4 million hashes of at most 64 bytes. Memory is taken for what a payload
// has, not for the lengths that it claims.
type Decoder struct {
	event  Event
	hashes []byte // of the event, joined
	parent []byte
	names  interner
}

// Decode calls each for the events of a payload, in order. Event and its slices are borrowed:
// they are valid until each returns; its strings stay valid. It fails with an ErrPayload that
// names the event and its field, possibly after some calls, or with the error of each.
func (d *Decoder) Decode(payload []byte, each func(*Event) error) (Batch, error) {
	batch := Batch{Rank: -1}
	n, b, err := readArrayHeader(payload)
	if err == nil && n < 2 {
		err = fmt.Errorf("%d elements, want a time and events", n)
	}
	if err != nil {
		return batch, fmt.Errorf("%w: batch: %w", ErrPayload, err)
	}
	if batch.Time, b, err = readTime(b); err != nil {
		return batch, fmt.Errorf("%w: time: %w", ErrPayload, err)
	}
	numEvents, b, err := readArrayHeader(b)
	if err != nil {
		return batch, fmt.Errorf("%w: events: %w", ErrPayload, err)
	}
	for i := range numEvents {
		if b, err = d.decodeEvent(b); err != nil {
			return batch, fmt.Errorf("%w: event %d: %w", ErrPayload, i, err)
		}
		if err := each(&d.event); err != nil {
			return batch, err
		}
	}
	if n > 2 {
		rank, rest, err := readOptional(b, -1, 0, math.MaxInt32)
		if err != nil {
			return batch, fmt.Errorf("%w: rank: %w", ErrPayload, err)
		}
		batch.Rank, b = int(rank), rest
	}
	for range max(n, 3) - 3 {
		if b, err = skip(b, maxDepth-1); err != nil {
			return batch, fmt.Errorf("%w: batch: %w", ErrPayload, err)
		}
	}
	if len(b) > 0 {
		return batch, fmt.Errorf("%w: %d bytes after the batch", ErrPayload, len(b))
	}
	return batch, nil
}

// decodeEvent reads one event into d.event.
func (d *Decoder) decodeEvent(b []byte) ([]byte, error) {
	d.event = Event{Group: NoGroup, LoRAID: -1, SlidingWindow: -1}
	if msgp.NextType(b) == msgp.ArrayType {
		return d.decodeArray(b)
	}
	return d.decodeMap(b)
}

// The fields of an event in the order of its elements, for engines that send arrays: vLLM up to
// 0.23, SGLang up to 0.5.19. Both have the same order up to the medium, where SGLang's end; its
// 0.5.18 and 0.5.19 may add a map in the place of vLLM's lora_name, see readMetadata.
var (
	storedFields = []field{
		fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoRAID, fieldMedium, fieldLoRAName,
		fieldExtraKeys, fieldGroup, fieldSpecKind, fieldWindow,
	}
	removedFields = []field{fieldHashes, fieldMedium, fieldGroup}
)

// decodeArray reads an event that is an array, headed by its type.
func (d *Decoder) decodeArray(b []byte) ([]byte, error) {
	n, b, err := readArrayHeader(b)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.New("an empty array")
	}
	if b, err = d.readKind(b); err != nil {
		return nil, err
	}
	var fields []field
	switch d.event.Kind {
	case KindStored:
		fields = storedFields
	case KindRemoved:
		fields = removedFields
	}
	for i := range n - 1 {
		switch {
		case i >= len(fields):
			b, err = skip(b, maxDepth-3)
		case fields[i] == fieldLoRAName && msgp.NextType(b) == msgp.MapType:
			b, err = d.readMetadata(b)
		default:
			b, err = d.readField(fields[i], b)
		}
		if err != nil {
			return nil, err
		}
	}
	if d.event.Kind != KindUnknown && n-1 < min(1, len(fields)) {
		return nil, fmt.Errorf("%s: missing", fieldHashes)
	}
	return b, nil
}

// readMetadata reads the map at the end of an array of SGLang. Only its salt is known.
func (d *Decoder) readMetadata(b []byte) ([]byte, error) {
	n, b, err := readMapHeader(b)
	for ; n > 0 && err == nil; n-- {
		var key, rest []byte
		if key, rest, err = readString(b); err != nil {
			break
		}
		if fieldOf(key) == fieldCacheSalt {
			b, err = d.readField(fieldCacheSalt, rest)
		} else {
			b, err = skip(rest, maxDepth-4)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return b, nil
}

// decodeMap reads an event that is a map. Engines send its type first.
func (d *Decoder) decodeMap(b []byte) ([]byte, error) {
	n, b, err := readMapHeader(b)
	if err != nil {
		return nil, err
	}
	var seen fieldSet
	if err := d.findKind(b, n); err != nil {
		return nil, err
	}
	for range n {
		key, rest, err := readString(b)
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		f := fieldOf(key)
		if !seen.add(f) {
			return nil, fmt.Errorf("%s: twice", f)
		}
		switch {
		case f == fieldType:
			b, err = d.readKind(rest)
		case f == fieldUnknown, d.event.Kind == KindUnknown, d.event.Kind == KindCleared:
			b, err = skip(rest, maxDepth-3)
		default:
			b, err = d.readField(f, rest)
		}
		if err != nil {
			return nil, err
		}
	}
	needsHashes := d.event.Kind == KindStored || d.event.Kind == KindRemoved
	if needsHashes && !seen.has(fieldHashes) {
		return nil, fmt.Errorf("%s: missing", fieldHashes)
	}
	return b, nil
}

// findKind sets the kind of an event of n keys, because the meaning of all other keys depends
// on it.
func (d *Decoder) findKind(b []byte, n int) error {
	for range n {
		key, rest, err := readString(b)
		if err != nil {
			return fmt.Errorf("key: %w", err)
		}
		if fieldOf(key) == fieldType {
			_, err = d.readKind(rest)
			return err
		}
		if b, err = skip(rest, maxDepth-3); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: missing", fieldType)
}

// readKind reads the type of an event.
func (d *Decoder) readKind(b []byte) ([]byte, error) {
	name, b, err := readString(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fieldType, err)
	}
	switch string(name) {
	case "BlockStored":
		d.event.Kind = KindStored
	case "BlockRemoved":
		d.event.Kind = KindRemoved
	case "AllBlocksCleared":
		d.event.Kind = KindCleared
	default:
		d.event.Kind = KindUnknown
	}
	return b, nil
}

// readField reads the value of a field.
func (d *Decoder) readField(f field, b []byte) (rest []byte, err error) {
	e := &d.event
	switch f {
	case fieldHashes:
		rest, err = d.readHashes(b)
	case fieldParent:
		rest, err = d.readParent(b)
	case fieldTokens:
		e.tokens, e.Bigrams, rest, err = readTokens(b)
	case fieldBlockSize:
		e.BlockSize, rest, err = readInt(b, 0, math.MaxInt64)
	case fieldLoRAID:
		e.LoRAID, rest, err = readOptional(b, -1, 0, math.MaxInt64)
	case fieldMedium:
		e.Tier.Medium, rest, err = d.readName(b, MaxName)
	case fieldLocality:
		e.Tier.Locality, rest, err = d.readName(b, MaxName)
	case fieldOwnership:
		e.Tier.Ownership, rest, err = d.readName(b, MaxName)
	case fieldSpecKind:
		e.SpecKind, rest, err = d.readName(b, MaxName)
	// Clients choose the rest of the strings, so any length is accepted.
	case fieldLoRAName:
		e.LoRAName, rest, err = d.readName(b, math.MaxInt)
	case fieldCacheSalt:
		e.CacheSalt, rest, err = d.readName(b, math.MaxInt)
	case fieldSessionID:
		e.SessionID, rest, err = d.readName(b, math.MaxInt)
	case fieldGroup:
		var group int64
		group, rest, err = readOptional(b, NoGroup, 0, math.MaxInt32)
		e.Group = int(group)
	case fieldWindow:
		e.SlidingWindow, rest, err = readOptional(b, -1, 0, math.MaxInt64)
	case fieldExtraKeys:
		e.extraKeys, rest, err = readList(b)
	case fieldLookahead:
		e.lookahead, rest, err = readList(b)
	default:
		rest, err = skip(b, maxDepth-3)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f, err)
	}
	return rest, nil
}

// readHashes reads the hashes of an event into d.hashes.
func (d *Decoder) readHashes(b []byte) ([]byte, error) {
	n, b, err := readArrayHeader(b)
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
		case length != hashLen:
			return nil, fmt.Errorf("a hash of %d bytes beside one of %d", length, hashLen)
		}
	}
	d.hashes = hashes
	d.event.Hashes = coordinator.NewHashes(hashes, hashLen)
	return b, nil
}

// readParent reads the hash in front of the first block, which may be nil.
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

// readName reads a string of at most limit bytes; nil is the empty one.
func (d *Decoder) readName(b []byte, limit int) (string, []byte, error) {
	if msgp.IsNil(b) {
		return "", b[1:], nil
	}
	name, b, err := readString(b)
	if err == nil && len(name) > limit {
		err = fmt.Errorf("a string of %d bytes, at most %d are accepted", len(name), limit)
	}
	if err != nil {
		return "", nil, err
	}
	return d.names.intern(name), b, nil
}
