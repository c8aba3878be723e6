package server_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// soakPatience bounds every wait for the server.
const soakPatience = 20 * time.Second

// soakCounts counts what was done, by kind, for the summary.
type soakCounts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *soakCounts) add(kind string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[kind] += n
}

func (c *soakCounts) fault(kind string) { c.add("fault: "+kind, 1) }

func (c *soakCounts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lines strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(c.of)) {
		fmt.Fprintf(&lines, "%s: %d\n", kind, c.of[kind])
	}
	return lines.String()
}

// soakWorker is one client. It has chains that nobody else knows, and a random
// sequence of its own.
type soakWorker struct {
	id     int
	rng    *rand.Rand
	pool   *soakPool
	server *soakServer
	resets *soakResets
	counts *soakCounts

	chains      []*soakChain
	salts       int // chains made so far
	incarnation int // that the model is about
	seen        int // resets that had begun when the last batch ended
}

func newSoakWorker(id int, seed uint64, pool *soakPool, server *soakServer, resets *soakResets, counts *soakCounts) *soakWorker {
	w := &soakWorker{id: id, rng: rand.New(rand.NewPCG(seed, uint64(id))), pool: pool, server: server, resets: resets, counts: counts}
	for range 6 {
		w.chains = append(w.chains, w.newChain())
	}
	return w
}

func (w *soakWorker) newChain() *soakChain {
	w.salts++
	n := 1 + w.rng.IntN(400)
	if w.rng.IntN(6) == 0 {
		n = 1 + w.rng.IntN(4000)
	}
	return newSoakChain(w.pool, fmt.Sprintf("%d/%d", w.id, w.salts), n, w.pool.hashLen)
}

// forget begins with nothing stored and nothing on its way.
func (w *soakWorker) forget() {
	for _, c := range w.chains {
		c.doubt = false
		c.empty()
	}
	w.seen, _, _ = w.resets.look(0)
}

var errUnasked = errors.New("a reply that was not asked for")

// run makes connections and uses them until ctx ends.
func (w *soakWorker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := w.episode(ctx); err != nil {
			return fmt.Errorf("worker %d: %w", w.id, err)
		}
	}
	return nil
}

// episode is the life of one connection.
func (w *soakWorker) episode(ctx context.Context) error {
	c, err := w.dial(ctx)
	if c == nil {
		return err
	}
	defer c.Close()
	if c.incarnation != w.incarnation { // what was stored is gone, and what was on its way
		w.incarnation = c.incarnation
		w.forget()
	}
	if w.rng.IntN(30) == 0 {
		w.counts.fault("silent")
		w.keep(c)
		return nil
	}
	if c.dialect != "raw" {
		_ = c.SetDeadline(time.Now().Add(soakPatience))
		if err := c.shake(w.rng); err != nil {
			return w.lost(c, "handshake", err)
		}
	}
	for range 1 + w.rng.IntN(8) {
		over, err := w.batch(c)
		if over || err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return w.leave(c)
}

// dial connects, or returns nil when the server is down or ctx has ended.
func (w *soakWorker) dial(ctx context.Context) (*soakConn, error) {
	if w.server.await(ctx) != nil {
		return nil, nil //nolint:nilerr // the run is over
	}
	before := w.server.current()
	network, address, err := api.SplitAddress(w.server.addrs[w.rng.IntN(4)/3])
	if err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout(network, address, soakPatience)
	switch {
	case err == nil && w.server.current() == before:
	case err == nil: // it may lead to either
		return nil, conn.Close()
	case errors.Is(err, syscall.EAGAIN) || !w.server.serves(before): // the queue of a unix socket is full
		time.Sleep(time.Millisecond)
		return nil, nil
	default:
		return nil, fmt.Errorf("lost: cannot connect: %w", err)
	}
	dialect := [...]string{"raw", "raw", "REQ", "DEALER"}[w.rng.IntN(4)]
	c := newSoakConn(conn)
	c.incarnation, c.dialect = before, dialect
	return c, nil
}

// keep leaves a connection open, to be closed much later.
func (w *soakWorker) keep(c *soakConn) {
	w.server.hold(c.Conn)
	c.Conn = soakKept{}
}

// soakKept stands for a connection that somebody else closes.
type soakKept struct{ net.Conn }

func (soakKept) Close() error { return nil }

// leave ends a connection on which nothing is due.
func (w *soakWorker) leave(c *soakConn) error {
	switch w.rng.IntN(3) {
	case 0:
		w.counts.fault("close")
	case 1:
		w.counts.fault("RST between requests")
		abort(c.Conn)
	case 2:
		w.counts.fault("half-close between requests")
		_ = c.SetDeadline(time.Now().Add(soakPatience))
		if err := closeWrite(c.Conn); err != nil {
			return w.lost(c, "half-close", err)
		}
		got, err := c.readEnd()
		if len(got) > 0 {
			return fmt.Errorf("%w: %v", errUnasked, got[0])
		}
		if err != nil {
			return w.lost(c, "close after a half-close", err)
		}
	}
	return nil
}

// abort closes with RST.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func closeWrite(conn net.Conn) error {
	return conn.(interface{ CloseWrite() error }).CloseWrite()
}

// lost decides on the end of a connection that this worker has not ended: right if
// the server was told to end.
func (w *soakWorker) lost(c *soakConn, what string, err error) error {
	var wrong *soakWrong
	if errors.As(err, &wrong) {
		return fmt.Errorf("%w: %s", wrong, what)
	}
	if _, ok := w.server.ending(c.incarnation); ok && !errors.Is(err, os.ErrDeadlineExceeded) {
		w.counts.fault("server ended")
		return nil
	}
	return fmt.Errorf("lost: %s on a connection of dialect %s: %w", what, c.dialect, err)
}

// A batch is some requests sent one behind the other, and their replies.
//
// What must hold, beside each answer being as allowed: there is exactly one reply
// to each request, with its envelope, and those to equal envelopes are in order. On a
// connection that the worker cuts, and on those of a server that is killed, there may
// be fewer, never others.
// A server that was asked to stop must have answered all that had begun to arrive.
type soakBatch struct {
	ops   []*soakOp
	ends  []int // where each request ends in the bytes
	bytes []byte
	cut   string // how the connection is ended in the middle, "" if it is not
	keep  int    // bytes that are sent
	marks []soakMark
	reset int  // number of the reset in it, -1 if none
	split bool // a reset within a lookup
}

// soakMark tells when so many bytes of a batch had been written.
type soakMark struct {
	bytes int
	at    time.Time
}

// begunBy is the number of replies due to requests of which a part had been
// written before a moment: the server must not end before it has answered them.
func (b *soakBatch) begunBy(t time.Time) (n int) {
	written := 0
	for _, m := range b.marks {
		if m.at.Before(t) {
			written = m.bytes
		}
	}
	begin := 0
	for i, op := range b.ops {
		if begin < written && !op.silent {
			n++
		}
		begin = b.ends[i]
	}
	return n
}

// batch makes one, sends it, takes the replies and judges them. over tells that the
// connection is no more.
func (w *soakWorker) batch(c *soakConn) (over bool, err error) {
	b := w.plan(c)
	began, open, cleared := w.resets.look(w.seen)
	if cleared && !open {
		w.empty()
	}
	if began > w.seen {
		w.unsure()
	}
	if b.reset = -1; b.split || b.has("reset") {
		b.reset = w.resets.begin()
	}
	_ = c.SetDeadline(time.Now().Add(soakPatience))
	proven := c.proven
	got, err := w.exchange(c, b)
	if b.reset >= 0 {
		w.resets.end(b.reset, err == nil)
	}
	now, _, _ := w.resets.look(0)
	others := now - began
	if b.reset >= 0 {
		others--
	}
	w.seen = now
	if open || others > 0 {
		w.unsure()
	}
	if failure := w.judge(b, got, open || others > 0); failure != nil {
		return true, failure
	}
	if b.cut != "" {
		return true, w.judgeCut(c, b, len(got), err)
	}
	if err != nil {
		if e, ok := w.server.ending(c.incarnation); ok && e.how == "term" && proven && len(got) < b.begunBy(e.at.Add(-arrives(c, b))) {
			return true, fmt.Errorf("lost: %d of the %d requests that were begun before SIGTERM (%v): %w", b.begunBy(e.at.Add(-arrives(c, b)))-len(got), len(b.ops), b.kinds(), err)
		}
		return true, w.lost(c, fmt.Sprintf("reply %d of %d (%v)", len(got), len(b.ops), b.kinds()), err)
	}
	return false, nil
}

// arrivesWithin is how long a small batch takes over TCP at most: a busy kernel hands
// it over a while after it was written.
const arrivesWithin = 200 * time.Millisecond

// arrives is how long before another moment a batch must be written to have
// arrived at it for certain: a unix socket hands over at once, TCP after a while, and
// what is large may wait for room.
func arrives(c *soakConn, b *soakBatch) time.Duration {
	switch {
	case c.RemoteAddr().Network() == "unix":
		return 0
	case len(b.bytes) <= 32<<10:
		return arrivesWithin
	}
	return time.Hour
}

func (w *soakWorker) empty() {
	for _, chain := range w.chains {
		chain.empty()
	}
}

func (w *soakWorker) unsure() {
	for _, chain := range w.chains {
		chain.unsure()
	}
}

func (b *soakBatch) has(kind string) bool {
	for _, op := range b.ops {
		if op.kind == kind {
			return true
		}
	}
	return false
}

func (b *soakBatch) kinds() map[string]int {
	kinds := map[string]int{}
	for _, op := range b.ops {
		kinds[op.kind]++
	}
	return kinds
}

// atOnce is the number of replies due before garbage to the requests that were sent whole, up to the first
// that a worker answers: that one, and what waits for it, ends with the connection.
func (b *soakBatch) atOnce() (n int) {
	for i, op := range b.ops {
		if b.ends[i] > b.keep || op.kind == "explain" || op.kind == "stat" || op.kind == "reset" || op.numHashes > 1<<16 {
			break
		}
		if !op.silent {
			n++
		}
	}
	return n
}

// match returns the reply to each request, nil for none. It returns an error if one was not asked for.
func (b *soakBatch) match(got []soakMessage) ([]*soakMessage, error) {
	matched := make([]*soakMessage, len(b.ops))
	for i := range got {
		at := b.find(matched, &got[i])
		if at < 0 {
			return nil, fmt.Errorf("%w: %v", errUnasked, got[i])
		}
		matched[at] = &got[i]
	}
	return matched, nil
}

// find returns the first request without a reply that has the envelope of a reply, -1 if there is none.
func (b *soakBatch) find(matched []*soakMessage, m *soakMessage) (at int) {
	at = -1
	for i, op := range b.ops {
		n := len(op.envelope)
		switch {
		case op.silent || matched[i] != nil || op.command != m.command || len(m.frames) <= n || !equalFrames(m.frames[:n], op.envelope):
		case n > 0:
			return i
		case at < 0:
			at = i // unless it has an envelope
		}
	}
	return at
}

// replies is the number of replies due to the requests that were sent whole.
func (b *soakBatch) replies() (n int) {
	for i, op := range b.ops {
		if b.ends[i] <= b.keep && !op.silent {
			n++
		}
	}
	return n
}

// judge goes through the requests in their order, in which they take effect. Those without a reply
// are in doubt; overlap says that a reset of another worker may have come in between.
func (w *soakWorker) judge(b *soakBatch, got []soakMessage, overlap bool) error {
	w.counts.add("batches", 1)
	replies, err := b.match(got)
	if err != nil {
		return err
	}
	for i, op := range b.ops {
		if op.silent {
			w.counts.add("request: "+op.kind, 1)
			if op.kind == soakResetWithin {
				w.empty()
			}
			continue
		}
		m := replies[i]
		if m == nil {
			if i == 0 || b.ends[i-1] < b.keep { // some of it was sent
				op.suspect()
			}
			continue
		}
		if err := w.judgeOne(op, *m); err != nil {
			return fmt.Errorf("wrong: reply %d of %d\n  request: %v\n  got:     %v\n  because: %w", i+1, len(b.ops), op, m, err)
		}
		w.counts.add("request: "+op.kind, 1)
		if overlap {
			w.unsure()
		}
	}
	for i, chain := range w.chains {
		if chain.doubt {
			if chain.looks++; chain.looks > 2 {
				w.chains[i] = w.newChain()
			}
		}
	}
	return nil
}

func (w *soakWorker) judgeOne(op *soakOp, m soakMessage) error {
	if op.kind == "lookup" {
		a := op.allowed(w.pool)
		switch {
		case a.exact:
			w.counts.add("lookups known exactly", 1)
		case a.least == a.most:
			w.counts.add("lookups bounded to one value", 1)
		default:
			w.counts.add("lookups bounded to a range", 1)
		}
		if body := m.frames[len(m.frames)-1]; len(body) == 4 && binary.BigEndian.Uint32(body) > 0 {
			w.counts.add("lookups that hit", 1)
		}
	}
	if err := op.judge(w.pool, m); err != nil {
		return err
	}
	if op.kind == "reset" {
		w.empty()
	}
	return nil
}

// judgeCut decides what a connection that the worker has cut must have given.
func (w *soakWorker) judgeCut(c *soakConn, b *soakBatch, got int, err error) error {
	w.counts.add("requests cut off", len(b.ops)-got)
	w.counts.fault(b.cut)
	var wrong *soakWrong
	if errors.As(err, &wrong) {
		return wrong
	}
	if b.cut != "half-close" && b.cut != "garbage" {
		return nil
	}
	if want := b.atOnce(); b.cut == "garbage" && got < want { // a half-close gives up what is not sent yet
		if err == nil {
			err = io.EOF
		}
		return w.lost(c, fmt.Sprintf("reply %d of the %d due before a %s (%v)", got, want, b.cut, b.kinds()), err)
	}
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("not closed after a %s: %w", b.cut, err)
	}
	return nil
}

// exchange sends a batch and takes what comes back.
func (w *soakWorker) exchange(c *soakConn, b *soakBatch) (got []soakMessage, err error) {
	if b.cut == "never read" {
		return nil, w.neverRead(c)
	}
	late := time.Duration(0)
	if w.rng.IntN(12) == 0 {
		late = time.Duration(w.rng.IntN(200)) * time.Millisecond
		w.counts.fault("reads late")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(late)
		switch b.cut {
		case "half-close", "garbage":
			got, err = c.readEnd()
		case "":
			got, err = c.read(b.replies())
		default:
			got, err = c.read(-1)
		}
	}()
	var sendErr error
	if b.split {
		sendErr = w.sendSplit(c, b.bytes)
	} else {
		sendErr = w.send(c, b, b.bytes[:b.keep])
	}
	switch b.cut {
	case "":
	case "garbage":
		garbage := make([]byte, 1+w.rng.IntN(2000))
		for i := range garbage {
			garbage[i] = byte(w.rng.Uint32())
		}
		garbage[0] |= 0x48 // reserved flags, so that it is no beginning of a frame
		_, _ = c.Write(garbage)
	case "half-close":
		_ = closeWrite(c.Conn)
	case "stops in the middle": // and the connection stays
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		<-done
		_ = c.SetDeadline(time.Time{})
		w.keep(c)
	case "RST":
		abort(c.Conn)
	default:
		_ = c.Close()
	}
	<-done
	if sendErr != nil {
		if b.cut == "" && len(got) < b.replies() && (err == nil || b.split) {
			err = sendErr
		}
	}
	return got, err
}

// sendSplit sends a message with a reset over another connection in between.
func (w *soakWorker) sendSplit(c *soakConn, p []byte) error {
	half := w.rng.IntN(len(p))
	if _, err := c.Write(p[:half]); err != nil {
		return err
	}
	time.Sleep(time.Duration(w.rng.IntN(3)) * time.Millisecond)
	other, err := net.Dial(c.RemoteAddr().Network(), c.RemoteAddr().String())
	if err == nil {
		_ = other.SetDeadline(time.Now().Add(soakPatience))
		second := newSoakConn(other)
		if _, err = other.Write(soakEncode(w.rng, []byte("reset"))); err == nil {
			var got []soakMessage
			if got, err = second.read(1); err == nil && got[0].String() != "01" {
				err = &soakWrong{"reset: " + got[0].String()}
			}
		}
		_ = other.Close()
	}
	if err != nil {
		_ = c.Close() // the reply must not be waited for
		return err
	}
	_, err = c.Write(p[half:])
	return err
}

// neverRead asks for more than the server keeps for a peer that reads nothing, requests and replies: it
// must close.
func (w *soakWorker) neverRead(c *soakConn) error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(64 << 10)
	}
	frames := [][]byte{[]byte("ping"), make([]byte, 60<<10)}
	if c.dialect != "raw" {
		frames = append([][]byte{{}}, frames...)
	}
	echo := soakEncode(w.rng, frames...)
	for range 2000 {
		if _, err := c.Write(echo); err != nil {
			abort(c.Conn)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return &soakWrong{"a peer that does not read was not closed"}
			}
			return nil
		}
	}
	return &soakWrong{"120 MiB of requests were taken from a peer that does not read"}
}

// send writes in one of several ways.
func (w *soakWorker) send(c *soakConn, b *soakBatch, p []byte) error {
	sent := 0
	write := func(n int) error {
		if n == 0 {
			return nil
		}
		m, err := c.Write(p[sent : sent+n])
		sent += m
		b.marks = append(b.marks, soakMark{sent, time.Now()})
		return err
	}
	switch style := w.rng.IntN(8); {
	case style == 0 && len(p) < 20_000:
		w.counts.fault("single bytes")
		for range min(len(p), 1+w.rng.IntN(600)) {
			if err := write(1); err != nil {
				return err
			}
		}
	case style == 1 && len(p) > 1:
		w.counts.fault("stall")
		if err := write(w.rng.IntN(len(p))); err != nil {
			return err
		}
		time.Sleep(time.Duration(1+w.rng.IntN(40)) * time.Millisecond)
	case style == 2:
		w.counts.fault("pieces")
		for sent < len(p) {
			if err := write(min(len(p)-sent, max(1, len(p)/64)+w.rng.IntN(1+w.rng.IntN(5000)))); err != nil {
				return err
			}
		}
	}
	return write(len(p) - sent)
}
