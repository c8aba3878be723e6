package server_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// soakHashes returns n hashes of a chain that begins with salt.
func soakHashes(salt string, n, hashLen int) []byte {
	b := make([]byte, 0, n*hashLen)
	prev := sha256.Sum256([]byte(salt))
	for i := range n {
		prev = sha256.Sum256(binary.BigEndian.AppendUint32(prev[:], uint32(i)))
		b = append(b, prev[:hashLen]...)
	}
	return b
}

// soakPool is the pool of a server, as the model needs it.
type soakPool struct {
	coord   *coordinator.Coordinator
	groups  []coordinator.Group
	ranks   int  // of tensor parallelism
	hashLen int  // in bytes; an index has hashes of one length
	evicts  bool // the index is bounded: whatever is stored may go at any time
}

func (p *soakPool) places() int { return len(p.groups) * p.ranks }

// soakChain is a chain of hashes that only one worker knows, and what that worker
// knows of it: sure holds what is certainly stored, may what is possibly. Both are
// by place (group and rank) and by hash.
type soakChain struct {
	hashLen   int
	raw       []byte
	sure, may [][]bool
	// doubt is set when a store or an evict was on a connection that was cut: it
	// may take effect at any time from now on. The chain is changed no more, and
	// replaced after a few looks.
	doubt bool
	looks int
	edge  int // a hash where a change began or ended; it is looked at from here
}

func newSoakChain(pool *soakPool, salt string, n, hashLen int) *soakChain {
	c := &soakChain{hashLen: hashLen, raw: soakHashes(salt, n, hashLen)}
	for range pool.places() {
		c.sure, c.may = append(c.sure, make([]bool, n)), append(c.may, make([]bool, n))
	}
	return c
}

func (c *soakChain) len() int { return len(c.raw) / c.hashLen }

// unsure notes that everything may be gone.
func (c *soakChain) unsure() {
	for _, place := range c.sure {
		clear(place)
	}
}

// empty notes that everything is gone, but for what is in doubt.
func (c *soakChain) empty() {
	c.unsure()
	if c.doubt {
		return
	}
	for _, place := range c.may {
		clear(place)
	}
}

// soakSpan is a part of the hashes of a lookup: of a chain, or, without one, of
// hashes that nobody stores.
type soakSpan struct {
	chain    *soakChain
	from, to int
}

// soakOp is a request and what is expected of it.
type soakOp struct {
	kind     string
	msg      []byte
	envelope [][]byte // as it must come back
	terse    bool     // a refusal is 00 alone: the reference's reply over ZMTP
	silent   bool     // no reply is due
	command  bool     // the reply is a command
	want     [][]byte // the reply's body, where it depends on nothing
	refused  bool     // 00 is due, or 04 of a change that is done in part

	// Of a lookup and an explain:
	tokens    int64
	spans     []soakSpan
	numHashes int

	// Of a store and an evict: the keys at index of chain, for place.
	chain *soakChain
	place int
	keys  []int
}

func (op *soakOp) String() string {
	s := fmt.Sprintf("%s %x", op.kind, op.msg[:min(len(op.msg), 96)])
	if op.spans != nil {
		s += fmt.Sprintf(" (%d tokens", op.tokens)
		for _, span := range op.spans {
			s += fmt.Sprintf(", hashes %d to %d of %p", span.from, span.to, span.chain)
		}
		s += ")"
	}
	if op.chain != nil {
		s += fmt.Sprintf(" (place %d, %d keys of %p from %d)", op.place, len(op.keys), op.chain, op.keys[0])
	}
	return s
}

// raw returns the hashes of a lookup, each as a span of its own.
func (op *soakOp) raw() (raw []soakSpan) {
	for _, span := range op.spans {
		for i := span.from; i < span.to; i++ {
			raw = append(raw, soakSpan{chain: span.chain, from: i})
		}
	}
	return raw
}

// presence is what the model knows of a lookup: low has only what is sure, high
// all that may be, and partly what is on some of its ranks, as far as it is sure.
func (op *soakOp) presence(pool *soakPool) (low, high, partly coordinator.Presence) {
	raw := op.raw()
	tokens, err := pool.coord.TokenLen(op.tokens)
	for g := range pool.groups {
		stride, positions := pool.coord.KeyStride(g), 0
		if err == nil {
			positions = pool.coord.Positions(g, tokens, op.numHashes)
		}
		var bits [3][]uint64
		for i := range bits {
			bits[i] = make([]uint64, (positions+63)/64)
		}
		mask := pool.coord.KeyMask(g)
		for i := range positions {
			h := raw[i*stride+stride-1]
			if h.chain == nil || !mask.At(int64(i)) {
				continue
			}
			sure, may := 0, 0
			for r := range pool.ranks {
				if h.chain.sure[g*pool.ranks+r][h.from] {
					sure++
				}
				if h.chain.may[g*pool.ranks+r][h.from] {
					may++
				}
			}
			for b, set := range [...]bool{sure == pool.ranks, may == pool.ranks, sure > 0} {
				if set {
					bits[b][i/64] |= 1 << (i % 64)
				}
			}
		}
		low.Bits, high.Bits, partly.Bits = append(low.Bits, bits[0]), append(high.Bits, bits[1]), append(partly.Bits, bits[2])
	}
	low.NumHashes, high.NumHashes, partly.NumHashes = op.numHashes, op.numHashes, op.numHashes
	return low, high, partly
}

// certain reports whether the model knows all about the hashes of a lookup.
func (op *soakOp) certain() bool {
	for _, span := range op.spans {
		if span.chain == nil {
			continue
		}
		for p := range span.chain.sure {
			if !slices.Equal(span.chain.sure[p], span.chain.may[p]) {
				return false
			}
		}
	}
	return true
}

// leading is the rule of a pool of one full-attention group, worked out here: the
// hit is the leading run of present blocks.
func (op *soakOp) leading(p *coordinator.Presence) int64 {
	n := int64(0)
	for n < op.tokens/16 && n < int64(op.numHashes) && p.Bits[0][n/64]>>(n%64)&1 == 1 {
		n++
	}
	return 16 * n
}

// soakAnswer is what is allowed: least to most tokens, or 00.
type soakAnswer struct {
	least, most       int64
	value, refusal    bool // such are allowed
	exact             bool
	low, high, partly coordinator.Presence
}

func (a soakAnswer) String() string {
	return fmt.Sprintf("%d to %d tokens (allowed %v), 00 (allowed %v)", a.least, a.most, a.value, a.refusal)
}

// allowed works out what may be the answer to a lookup.
//
// Presence only adds to an answer, so it lies between the rule over what is sure
// and the rule over what may be; where nothing is in doubt the two are one. A
// refusal too depends on presence in pools with windows: those read the last block
// before the hashes end.
func (op *soakOp) allowed(pool *soakPool) (a soakAnswer) {
	a.low, a.high, a.partly = op.presence(pool)
	a.exact = op.certain() && !pool.evicts
	if pool.evicts {
		for g := range a.low.Bits {
			clear(a.low.Bits[g])
		}
	}
	var s coordinator.Scratch
	low, lowErr := pool.coord.Answer(&a.low, op.tokens, &s)
	high, highErr := pool.coord.Answer(&a.high, op.tokens, &s)
	least, most := low.Tokens, high.Tokens
	if len(pool.groups) == 1 && highErr == nil {
		least, most = op.leading(&a.low), op.leading(&a.high)
	}
	a.least, a.most = least, most
	if highErr != nil {
		a.most = op.tokens
	}
	a.refusal = lowErr != nil || highErr != nil
	a.value = !a.refusal || !a.exact
	return a
}

// judge compares a reply with what is allowed and then notes what the request has
// done.
func (op *soakOp) judge(pool *soakPool, m soakMessage) error {
	if m.command != op.command {
		return fmt.Errorf("want a command: %v", op.command)
	}
	n := len(op.envelope)
	if len(m.frames) <= n || !equalFrames(m.frames[:n], op.envelope) {
		return fmt.Errorf("want the envelope %x", op.envelope)
	}
	body := m.frames[n:]
	partly := string(body[0]) == "\x04"
	refused := partly || string(body[0]) == "\x00"
	switch {
	case refused && (len(body) != 3) != op.terse:
		return fmt.Errorf("want 00 alone (%v) or the reason with it", op.terse)
	case op.refused && !refused:
		return fmt.Errorf("want 00")
	case partly && op.kind != "store with a frame too many":
		return fmt.Errorf("nothing was to be done")
	case partly:
		op.apply()
		return nil
	case op.refused:
		return nil
	case op.want != nil:
		if !equalFrames(body, op.want) {
			return fmt.Errorf("want %v", soakMessage{frames: op.want})
		}
		op.apply()
		return nil
	}
	switch op.kind {
	case "lookup", "explain":
		return op.judgeHit(pool, body, refused)
	case "stat":
		return op.judgeStat(pool, body)
	}
	return fmt.Errorf("the test does not know what to expect")
}

func equalFrames(a, b [][]byte) bool {
	return slices.EqualFunc(a, b, func(x, y []byte) bool { return string(x) == string(y) })
}

func (op *soakOp) judgeHit(pool *soakPool, body [][]byte, refused bool) error {
	a := op.allowed(pool)
	if op.kind == "explain" { // groups that are asked alone may fail where all together do not
		_, _, lowErr := pool.coord.Explain(&a.low, &a.partly, op.tokens)
		_, _, highErr := pool.coord.Explain(&a.high, &a.partly, op.tokens)
		a.refusal = a.refusal || lowErr != nil || highErr != nil
		a.value = !a.refusal || !a.exact
	}
	if refused {
		if !a.refusal {
			return fmt.Errorf("want %v", a)
		}
		return nil
	}
	var hit int64
	var told api.Explanation
	switch {
	case op.kind == "lookup" && len(body) == 1 && len(body[0]) == 4:
		hit = int64(binary.BigEndian.Uint32(body[0]))
	case op.kind == "explain" && len(body) == 2 && string(body[0]) == "\x01":
		if err := json.Unmarshal(body[1], &told); err != nil {
			return err
		}
		hit = told.HitTokens
	default:
		return fmt.Errorf("want another form of reply")
	}
	if !a.value || hit < a.least || hit > a.most || hit%pool.coord.Alignment() != 0 {
		return fmt.Errorf("%d tokens, want %v", hit, a)
	}
	if op.kind != "explain" || !a.exact {
		return nil
	}
	return op.judgeExplanation(pool, &a, told)
}

// judgeExplanation compares with the coordinator's own explanation.
func (op *soakOp) judgeExplanation(pool *soakPool, a *soakAnswer, told api.Explanation) error {
	_, ends, err := pool.coord.Explain(&a.low, &a.partly, op.tokens)
	if err != nil {
		return err
	}
	raw := op.raw()
	for g := range ends {
		at := pool.coord.FirstMissingPosition(&ends[g])
		if at < 0 || !pool.coord.KeyMask(g).At(int64(at)) {
			continue
		}
		stride := pool.coord.KeyStride(g)
		if h := raw[at*stride+stride-1]; h.chain != nil {
			pool.coord.SetMissingRank(&ends[g], func(i int) bool { return h.chain.sure[g*pool.ranks+i][h.from] })
		}
	}
	want := api.NewExplanation(api.Hit{Tokens: a.least}, ends)
	wantText, _ := json.Marshal(want)
	gotText, _ := json.Marshal(told)
	if string(wantText) != string(gotText) {
		return fmt.Errorf("%s, want %s", gotText, wantText)
	}
	return nil
}

func (op *soakOp) judgeStat(pool *soakPool, body [][]byte) error {
	var st api.Stat
	if len(body) != 2 || string(body[0]) != "\x01" {
		return fmt.Errorf("want 01 and a document")
	}
	if err := json.Unmarshal(body[1], &st); err != nil {
		return err
	}
	if st.Connections < 1 || st.Entries < 0 || st.Bytes <= 0 || st.Bytes > st.MaxBytes || st.MaxEntries > 0 && st.Entries > st.MaxEntries ||
		st.AcceptErrors != 0 || !pool.evicts && st.MaxEntries != 0 {
		return fmt.Errorf("that cannot be")
	}
	return nil
}

// apply notes what a request that was answered has done.
func (op *soakOp) apply() {
	switch op.kind {
	case "store", "store with a frame too many":
		op.mark(true, true)
	case "evict":
		op.mark(false, false)
	}
}

// suspect notes that a request may have been done, or will be.
func (op *soakOp) suspect() {
	switch op.kind {
	case "store", "store with a frame too many":
		for _, i := range op.keys {
			op.chain.may[op.place][i] = true
		}
	case "evict":
		for _, i := range op.keys {
			op.chain.sure[op.place][i] = false
		}
	default:
		return
	}
	op.chain.doubt = true
}

func (op *soakOp) mark(sure, may bool) {
	for _, i := range op.keys {
		op.chain.sure[op.place][i], op.chain.may[op.place][i] = sure, may
	}
}

// soakResets is what all workers know of resets, which reach into what each of
// them has stored. A reset takes effect at some moment between its begin and its
// end.
type soakResets struct {
	mu    sync.Mutex
	began []soakReset
	open  int // begun and not ended
}

type soakReset struct{ done bool }

// begin notes a reset before it is sent, and returns its number.
func (r *soakResets) begin() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = append(r.began, soakReset{})
	r.open++
	return len(r.began) - 1
}

// end notes that it was answered or, if done is false, will never take effect.
func (r *soakResets) end(number int, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began[number].done = done
	r.open--
}

// look returns how many resets have begun and whether one is in flight. cleared
// reports whether one took effect wholly after the first since of them had begun.
func (r *soakResets) look(since int) (began int, open, cleared bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reset := range r.began[since:] {
		cleared = cleared || reset.done
	}
	return len(r.began), r.open > 0, cleared
}
