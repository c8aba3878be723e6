package blockhash

import (
	"crypto/sha256"
	"fmt"
	"math"
	"unicode/utf8"
)

// ExtraKeys are what the hashes of a prompt depend on besides its tokens. The zero value and
// nil are a prompt of tokens alone.
type ExtraKeys struct {
	LoRA *LoRA
	// Items are the multi-modal items in the order of their offsets.
	Items []Item
	Salt  string // cache_salt, "" if there is none
	// Embeds are the SHA-256 digests of the prompt embeddings, one for each block: of the rows
	// of its tokens and of its lookahead tokens, as bytes of the tensor. nil means that the
	// prompt has no embeddings. Blocks behind the last digest have no rows.
	Embeds [][sha256.Size]byte
}

// LoRA is the adapter of a request.
type LoRA struct {
	Name string
	Path string // counts from 0.31.0 on
}

// Item is a multi-modal item of a prompt.
type Item struct {
	// ID is what the engine identifies the item by. It may contain the adapter's name.
	ID string
	// Offset is the position of its first placeholder token, Length the number of them.
	Offset, Length int
}

// noRows is the digest of embeddings without rows.
var noRows = sha256.Sum256(nil)

// empty reports whether no block has extra keys.
func (k *ExtraKeys) empty() bool {
	return k == nil || k.LoRA == nil && len(k.Items) == 0 && k.Salt == "" && k.Embeds == nil
}

// check returns an error for keys that no request has.
func (k *ExtraKeys) check() error {
	if !utf8.ValidString(k.Salt) || k.LoRA != nil && !(utf8.ValidString(k.LoRA.Name) && utf8.ValidString(k.LoRA.Path)) {
		return fmt.Errorf("%w: salt, adapter name or adapter path is not UTF-8", ErrExtraKeys)
	}
	before := 0
	for i, item := range k.Items {
		switch {
		case item.Offset < before:
			return fmt.Errorf("%w: item %d begins at %d, want the order of the offsets, from 0 on", ErrExtraKeys, i, item.Offset)
		case item.Length < 0 || item.Length > math.MaxInt-item.Offset:
			return fmt.Errorf("%w: item %d has %d tokens", ErrExtraKeys, i, item.Length)
		case !utf8.ValidString(item.ID):
			return fmt.Errorf("%w: the identifier of item %d is not UTF-8", ErrExtraKeys, i)
		}
		before = item.Offset
	}
	return nil
}

// blockKeys finds the extra keys of one block after the other. Its state is that of the
// engine when it hashes a prompt from the beginning.
type blockKeys struct {
	h    *VLLM
	keys *ExtraKeys // nil if no block has any

	next        int    // item that the search of the next block begins at
	start       int    // of the block
	first, last int    // items between which those of the block are
	end         int    // of what the block's keys cover
	num         int    // of keys of the block
	embeds      []byte // digest of the block's embeddings, nil without
}

// skipTo brings the state to a block's start. Only with lookahead tokens and items that overlap
// do the items of a block depend on the blocks before.
func (b *blockKeys) skipTo(start int) {
	if b.keys == nil || len(b.keys.Items) == 0 || b.h.lookahead == 0 {
		return
	}
	last := b.keys.Items[len(b.keys.Items)-1]
	for at := 0; at < start && at < last.Offset+last.Length; at += b.h.blockSize {
		b.findItems(at)
	}
}

// find finds the keys of the block that begins at start. Blocks come in order.
func (b *blockKeys) find(start int) {
	if b.keys == nil {
		return
	}
	b.num = b.findItems(start)
	if b.keys.LoRA != nil {
		b.num++
	}
	if b.salted() {
		b.num++
	}
	if b.keys.Embeds != nil {
		b.num++
		b.embeds = noRows[:]
		if i := start / b.h.blockSize; i < len(b.keys.Embeds) {
			b.embeds = b.keys.Embeds[i][:]
		}
	}
}

// findItems finds the items of the block that begins at start, and returns their number. An
// item that is over before the block is none of them, though it may lie between others.
func (b *blockKeys) findItems(start int) (num int) {
	items := b.keys.Items
	blockEnd := start + b.h.blockSize
	b.start, b.end, b.first, b.last = start, blockEnd+b.h.lookahead, b.next, b.next
	if len(items) == 0 {
		return 0
	}
	if last := items[len(items)-1]; last.Offset+last.Length <= start {
		return 0
	}
	i := b.next
	for ; i < len(items) && b.end > items[i].Offset; i++ {
		itemEnd := items[i].Offset + items[i].Length
		if start >= itemEnd {
			continue // no longer in the block
		}
		num++
		b.last = i + 1
		if b.end < itemEnd {
			break
		}
	}
	// With lookahead tokens the next block may have items again that end in them.
	for b.h.lookahead > 0 && i > 0 && items[i-1].Offset+items[i-1].Length > blockEnd {
		i--
	}
	b.next = i
	return num
}

// salted reports whether the block has the salt as a key.
func (b *blockKeys) salted() bool { return b.start == 0 && b.keys.Salt != "" }

// write writes the keys of the block.
func (b *blockKeys) write(out serializer) {
	if b.keys == nil || b.num == 0 {
		out.none()
		return
	}
	tagged := b.h.rules.tagged
	out.beginTuple(b.num)
	if lora := b.keys.LoRA; lora != nil {
		beginKey(out, tagged, "lora", 3)
		out.text(lora.Name)
		if tagged {
			out.text(lora.Path)
		}
		endKey(out, tagged, 3)
	}
	b.writeItems(out)
	if b.salted() {
		beginKey(out, tagged, "cache_salt", 2)
		out.text(b.keys.Salt)
		endKey(out, tagged, 2)
	}
	if b.embeds != nil {
		beginKey(out, tagged, "prompt_embeds", 2)
		out.bytes(b.embeds)
		endKey(out, tagged, 2)
	}
	out.endTuple(b.num)
}

// writeItems writes the items of the block.
func (b *blockKeys) writeItems(out serializer) {
	tagged := b.h.rules.tagged
	n := 2
	if tagged {
		n = 3
	}
	for _, item := range b.keys.Items[b.first:b.last] {
		if b.start >= item.Offset+item.Length {
			continue
		}
		out.beginTuple(n)
		if tagged {
			out.constant("mm")
		}
		out.text(item.ID)
		out.int(int64(item.Offset) - int64(b.start))
		out.endTuple(n)
	}
}

// beginKey begins a tagged key of n elements. An untagged one is its value alone.
func beginKey(out serializer, tagged bool, tag string, n int) {
	if tagged {
		out.beginTuple(n)
		out.constant(tag)
	}
}

func endKey(out serializer, tagged bool, n int) {
	if tagged {
		out.endTuple(n)
	}
}
