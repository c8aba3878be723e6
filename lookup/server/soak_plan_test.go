package server_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
)

// soakJunk returns hashes that nobody stores, as many as fill 4 MiB.
var soakJunk = sync.OnceValue(func() []byte {
	b := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return b
})

// plan makes a batch for a connection.
func (w *soakWorker) plan(c *soakConn) *soakBatch {
	b := new(soakBatch)
	n := 1
	if c.dialect != "REQ" && w.rng.IntN(5) > 1 {
		n = 2 + w.rng.IntN(40)
	}
	if w.rng.IntN(5) == 0 {
		b.cut = [...]string{"close", "RST", "half-close", "garbage", "stops in the middle", "close"}[w.rng.IntN(6)]
	} else if w.rng.IntN(300) == 0 {
		b.cut = "never read"
		return b
	}
	if b.cut == "" && w.rng.IntN(150) == 0 {
		if b.split = w.rng.IntN(2) == 0; b.split {
			b.add(&soakOp{kind: soakResetWithin, silent: true})
			b.add(w.ask(c, "lookup"))
			b.keep = len(b.bytes)
			return b
		}
		b.add(w.finish(c, &soakOp{kind: "reset", want: [][]byte{{1}}}, []byte("reset")))
	}
	replies := 0 // bytes of large ones: fewer than a peer may leave unread
	for len(b.ops) < n {
		for _, op := range w.requests(c, &replies) {
			b.add(op)
		}
	}
	b.keep = len(b.bytes)
	switch {
	case b.cut == "garbage": // behind whole requests
	case b.cut == "" || w.rng.IntN(8) == 0:
	default:
		b.keep = w.rng.IntN(len(b.bytes))
	}
	return b
}

// soakResetWithin is a reset over another connection while a lookup is half sent:
// what the half has found is forgotten.
const soakResetWithin = "reset within a lookup"

func (b *soakBatch) add(op *soakOp) {
	b.ops = append(b.ops, op)
	b.bytes = append(b.bytes, op.msg...)
	b.ends = append(b.ends, len(b.bytes))
}

// finish gives a request its envelope and its bytes.
func (w *soakWorker) finish(c *soakConn, op *soakOp, body ...[]byte) *soakOp {
	zmtp := c.dialect != "raw"
	op.terse = zmtp && !slices.Contains([]string{"explain", "store", "evict", "ping", "stat"}, string(body[0]))
	switch {
	case c.dialect == "REQ" && w.rng.IntN(2) == 0, w.rng.IntN(4) == 0: // the delimiter alone
		op.envelope = [][]byte{{}}
	case zmtp || w.rng.IntN(2) == 0:
		addresses := 1
		if c.dialect != "REQ" {
			addresses += w.rng.IntN(3)
		}
		for range addresses {
			a := make([]byte, 1+w.rng.IntN(12))
			for i := range a {
				a[i] = byte(w.rng.Uint32())
			}
			if !zmtp {
				a[0] = 0
			}
			op.envelope = append(op.envelope, a)
		}
		op.envelope = append(op.envelope, []byte{})
	}
	op.msg = soakEncode(w.rng, slices.Concat(op.envelope, body)...)
	return op
}

// requests makes a request, or some that belong together.
func (w *soakWorker) requests(c *soakConn, replies *int) []*soakOp {
	one := func(op *soakOp) []*soakOp { return []*soakOp{op} }
	switch r := w.rng.IntN(100); {
	case r < 50:
		return one(w.ask(c, "lookup"))
	case r < 56:
		return one(w.ask(c, "explain"))
	case r < 74:
		return w.store(c)
	case r < 80:
		return one(w.evict(c))
	case r < 87:
		return one(w.ping(c, replies))
	case r < 89:
		return one(w.finish(c, &soakOp{kind: "stat"}, []byte("stat")))
	case r < 96 || c.dialect != "DEALER":
		return one(w.bad(c))
	case r < 98:
		return one(w.command(r))
	}
	op := &soakOp{kind: "without a delimiter", silent: true}
	op.msg = soakEncode(w.rng, []byte("stat"))
	return one(op)
}

// command makes a ZMTP command.
func (w *soakWorker) command(r int) *soakOp {
	if r == 96 {
		return &soakOp{kind: "ignored command", silent: true, msg: soakFrame(nil, soakCommand, []byte("\x05ABOUTx"), false)}
	}
	context := make([]byte, w.rng.IntN(17))
	return &soakOp{
		kind: "PING", command: true, want: [][]byte{append([]byte("\x04PONG"), context...)},
		msg: soakFrame(nil, soakCommand, append([]byte("\x04PING\x00\x00"), context...), false),
	}
}

func (w *soakWorker) ping(c *soakConn, replies *int) *soakOp {
	op := &soakOp{kind: "ping", want: [][]byte{{1}}}
	for range 1 + w.rng.IntN(3) { // without frames the reply names the instance
		n := w.rng.IntN(300)
		if w.rng.IntN(10) == 0 && *replies < 400<<10 {
			n = w.rng.IntN(20 << 10)
		}
		*replies += n
		echo := make([]byte, n)
		for i := range echo {
			echo[i] = byte(w.rng.Uint32())
		}
		op.want = append(op.want, echo)
	}
	return w.finish(c, op, append([][]byte{[]byte("ping")}, op.want[1:]...)...)
}

func u16(v int) []byte   { return binary.BigEndian.AppendUint16(nil, uint16(v)) }
func u32(v int64) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }

// ask makes a lookup or an explain: the first hashes of a chain, sometimes followed
// by others, of a chain that parts from it or of none.
func (w *soakWorker) ask(c *soakConn, kind string) *soakOp {
	op := &soakOp{kind: kind}
	if w.rng.IntN(60) == 0 {
		op.tokens = 64
		return w.finish(c, op, []byte(kind), soakNumbers(kind, 64), u16(0), nil)
	}
	chain := w.chains[w.rng.IntN(len(w.chains))]
	n := chain.len()
	if w.rng.IntN(3) == 0 {
		n = 1 + w.rng.IntN(n)
	}
	var blob []byte
	span := func(chain *soakChain, from, to int) {
		op.spans = append(op.spans, soakSpan{chain, from, to})
		op.numHashes += to - from
		blob = append(blob, chain.raw[from*chain.hashLen:to*chain.hashLen]...)
	}
	from := 0
	if w.rng.IntN(4) == 0 { // hashes are opaque: a request may begin with any
		from = w.near(chain, n)
	}
	span(chain, from, n)
	other := w.chains[w.rng.IntN(len(w.chains))]
	if w.rng.IntN(6) == 0 && other != chain && other.hashLen == chain.hashLen {
		from := w.near(other, other.len())
		span(other, from, other.len())
	}
	junk := 0
	switch {
	case w.rng.IntN(500) == 0 && kind == "lookup":
		junk = 4<<20/chain.hashLen - op.numHashes
		w.counts.fault("lookup of 4 MiB")
	case w.rng.IntN(8) == 0:
		junk = 1 + w.rng.IntN(200)
	}
	if junk > 0 {
		op.spans = append(op.spans, soakSpan{nil, 0, junk})
		op.numHashes += junk
		blob = append(blob, soakJunk()[:junk*chain.hashLen]...)
	}
	if w.rng.IntN(20) == 0 && kind == "lookup" { // a cut hash, which counts for nothing
		blob = append(blob, make([]byte, w.rng.IntN(chain.hashLen))...)
	}
	align := w.pool.coord.Alignment()
	op.tokens = int64(op.numHashes) * 16 / align * align
	switch w.rng.IntN(12) {
	case 0:
		op.tokens = align * w.rng.Int64N(op.tokens/align+1)
	case 1:
		op.tokens += align * w.rng.Int64N(20)
	case 2:
		op.tokens++ // not aligned
	}
	tokens := soakNumbers(kind, op.tokens)
	if w.rng.IntN(20) == 0 && kind == "lookup" {
		tokens = binary.BigEndian.AppendUint64(nil, uint64(op.tokens))
	}
	return w.finish(c, op, []byte(kind), tokens, u16(chain.hashLen), blob)
}

// soakNumbers returns the frame of num_tokens, of an explain with a start of 0.
func soakNumbers(kind string, tokens int64) []byte {
	if kind == "explain" {
		return append(u32(tokens), u32(0)...)
	}
	return u32(tokens)
}

// near returns a number below n, often one beside the edge of a change.
func (w *soakWorker) near(chain *soakChain, n int) int {
	if at := chain.edge - 2 + w.rng.IntN(4); w.rng.IntN(2) == 0 && at >= 0 && at < n {
		return at
	}
	return w.rng.IntN(n)
}

// keysOf returns the hashes of a group's chunks from one to another, as indexes.
func (w *soakWorker) keysOf(place, from, to int) (keys []int) {
	stride := w.pool.coord.Stride(place / w.pool.ranks)
	for i := from; i < to; i++ {
		keys = append(keys, i*stride+stride-1)
	}
	return keys
}

// change makes a store or an evict of chunks of a chain.
func (w *soakWorker) change(c *soakConn, kind string, chain *soakChain, place, from, to int) *soakOp {
	op := &soakOp{kind: kind, chain: chain, place: place, keys: w.keysOf(place, from, to), want: [][]byte{{1}}}
	var blob []byte
	for _, i := range op.keys {
		blob = append(blob, chain.raw[i*chain.hashLen:(i+1)*chain.hashLen]...)
	}
	group, rank := place/w.pool.ranks, place%w.pool.ranks
	at := slices.Concat(u16(group), u16(rank), u16(0))
	switch w.rng.IntN(3) {
	case 1:
		at = append(at, 0, 0)
	case 2:
		at = append(append(at, 0, 0), u32(int64(from))...)
	}
	frames := [][]byte{[]byte(kind), at, u16(chain.hashLen), blob}
	if kind == "store" && from > 0 && w.rng.IntN(4) == 0 {
		i := w.keysOf(place, from-1, from)[0]
		frames = append(frames, chain.raw[i*chain.hashLen:(i+1)*chain.hashLen])
	}
	if kind == "store" && w.rng.IntN(40) == 0 { // its keys are stored, unless it waits for requests before it
		op.kind, op.want, op.refused = "store with a frame too many", nil, true
		frames = append(frames[:4], chain.raw[:chain.hashLen], []byte("x"))
	}
	return w.finish(c, op, frames...)
}

// changeable picks a chain whose state is not in doubt and a run of its chunks, ok
// false if there is none. All of it, if all is set.
func (w *soakWorker) changeable(place int, all bool) (chain *soakChain, from, to int, ok bool) {
	chain = w.chains[w.rng.IntN(len(w.chains))]
	chunks := chain.len() / w.pool.coord.Stride(place/w.pool.ranks)
	if chain.doubt || chunks == 0 {
		return nil, 0, 0, false
	}
	if all {
		return chain, 0, chunks, true
	}
	stride := w.pool.coord.Stride(place / w.pool.ranks)
	from = min(w.near(chain, chain.len())/stride, chunks-1)
	to = from + 1 + w.rng.IntN(chunks-from)
	chain.edge = [...]int{from, to}[w.rng.IntN(2)] * stride
	return chain, from, to, true
}

// store makes stores: of a whole chain in all places, or of a part of it in one.
func (w *soakWorker) store(c *soakConn) (ops []*soakOp) {
	place := w.rng.IntN(w.pool.places())
	all := w.rng.IntN(3) > 0
	chain, from, to, ok := w.changeable(place, all)
	if !ok {
		return []*soakOp{w.ask(c, "lookup")}
	}
	if !all || c.dialect == "REQ" {
		return []*soakOp{w.change(c, "store", chain, place, from, to)}
	}
	for place := range w.pool.places() {
		if chunks := chain.len() / w.pool.coord.Stride(place/w.pool.ranks); chunks > 0 {
			ops = append(ops, w.change(c, "store", chain, place, 0, chunks))
		}
	}
	return ops
}

func (w *soakWorker) evict(c *soakConn) *soakOp {
	place := w.rng.IntN(w.pool.places())
	chain, from, to, ok := w.changeable(place, w.rng.IntN(4) == 0)
	if !ok {
		return w.ask(c, "lookup")
	}
	return w.change(c, "evict", chain, place, from, to)
}

// bad makes a request that can be framed and not served.
func (w *soakWorker) bad(c *soakConn) *soakOp {
	hash := soakJunk()[:32]
	place := make([]byte, 6)
	outside := slices.Concat(u16(len(w.pool.groups)), u16(0), u16(0))
	body := [...][][]byte{
		{[]byte("nonsense")},
		{[]byte("LOOKUP"), u32(16), u16(32), hash},
		{[]byte("lookup"), u32(64), u16(32)},
		{[]byte("lookup"), u32(64), u16(65), soakJunk()[:65]},
		{[]byte("lookup"), u32(3), u16(32), hash},
		{[]byte("store"), outside, u16(32), hash},
		{[]byte("evict"), outside, u16(32), hash},
		{[]byte("store"), slices.Concat(u16(0), u16(w.pool.ranks), u16(0)), u16(32), hash},
		{[]byte("store"), place, u16(0), hash},
		{[]byte("store"), place, u16(24), hash[:24]}, // another length than the pool's
		{[]byte("store"), place, u16(32), nil},
		{[]byte("store"), place, u16(32), soakJunk()[1<<20 : 1<<20+31]},
		{[]byte("store"), place[:5], u16(32), hash},
		{[]byte("evict"), place, u16(32)},
		{[]byte("ping"), soakJunk()[:64<<10+1]},
	}[w.rng.IntN(15)]
	return w.finish(c, &soakOp{kind: "bad", refused: true}, body...)
}
