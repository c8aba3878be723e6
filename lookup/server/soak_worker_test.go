package server

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// soakChain is a chain of hashes that only one worker knows, and what is stored of it. After a connection was cut with
// changes on their way the worker takes new chains: nobody asks for those whose state is in doubt.
type soakChain struct {
	hashes []byte
	length int
	stored [][]bool // by place, which is group * ranks + rank, and hash
}

// soakKey is a hash of a lookup: that of a chain, or, without one, one that nobody stores.
type soakKey struct {
	chain *soakChain
	index int
}

// soakWorker is one client, with a random sequence of its own.
type soakWorker struct {
	*soak
	id     int
	rng    *rand.Rand
	pool   string // the name of its own pool; "" in the server's
	number int    // of the server that its chains are stored in
	chains []*soakChain
	old    []*soakChain // that may be stored and are to be evicted, so that the index does not fill up
	made   int          // chains so far
}

// forget takes new chains.
func (w *soakWorker) forget() {
	w.old, w.chains = append(w.old, w.chains...), nil
	for range 6 {
		n := 1 + w.rng.IntN(400)
		if w.rng.IntN(6) == 0 {
			n = 1 + w.rng.IntN(4000)
		}
		w.made++
		c := &soakChain{hashes: lookuptest.Chain(fmt.Sprint(w.id, " ", w.made), n, w.cfg.Pool.HashLen), length: n}
		for range len(w.cfg.Pool.Groups) * w.cfg.Pool.TPSize {
			c.stored = append(c.stored, make([]bool, n))
		}
		w.chains = append(w.chains, c)
	}
}

// run makes connections and uses them until ctx ends.
func (w *soakWorker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		number, up := w.current()
		select {
		case <-up:
		case <-ctx.Done():
			return nil
		}
		c, err := w.dial(number)
		if err == nil && c != nil {
			err = w.use(ctx, c)
			_ = c.Close()
		}
		if err != nil {
			return fmt.Errorf("worker %d: %w", w.id, err)
		}
	}
	return nil
}

// soakConn is a connection of a worker.
type soakConn struct {
	net.Conn
	number int // of the server that it leads to
	zmtp   bool
	in     []byte
}

// dial connects to a server, or returns nil if that has ended.
func (w *soakWorker) dial(number int) (*soakConn, error) {
	network, address, err := api.SplitAddress(w.cfg.Listen[w.rng.IntN(4)/3])
	if err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout(network, address, lookuptest.Patience)
	switch {
	case err == nil && w.serves(number):
		return &soakConn{Conn: conn, number: number, zmtp: w.rng.IntN(2) == 0}, nil
	case err == nil: // it may lead to the next one
		return nil, conn.Close()
	case errors.Is(err, syscall.EAGAIN) || !w.serves(number): // the queue of a unix socket is full
		time.Sleep(time.Millisecond)
		return nil, nil //nolint:nilnil // documented
	}
	return nil, err
}

// use uses a connection until it is over or ctx ends.
func (w *soakWorker) use(ctx context.Context, c *soakConn) error {
	if c.number != w.number { // nothing is stored any more
		w.number = c.number
		w.forget()
		w.old = nil
	}
	if w.rng.IntN(30) == 0 {
		w.leave(c, "silent")
		return nil
	}
	_ = c.SetDeadline(time.Now().Add(lookuptest.Patience))
	if c.zmtp {
		hello := slices.Concat(zmtpGreeting, zmtpReady)
		answer, err := make([]byte, len(zmtpAnswer)), w.write(c, hello)
		if err == nil {
			_, err = io.ReadFull(c, answer)
		}
		if err != nil || string(answer) != string(zmtpAnswer) {
			return w.lost(c, fmt.Errorf("handshake: %q: %w", answer, err))
		}
	}
	if w.pool != "" {
		description, _ := json.Marshal(struct {
			Name string `json:"name"`
			coordinator.Pool
		}{w.pool, w.cfg.Pool})
		if over, err := w.exchange(c, []*soakOp{{frames: frames("pool", description), judge: isDone}}); over || err != nil {
			return err
		}
	}
	var evicts []*soakOp
	for _, chain := range w.old {
		for place := range chain.stored {
			evicts = append(evicts, w.change("evict", chain, place, true))
		}
	}
	if over, err := w.exchange(c, evicts); over || err != nil {
		return err
	}
	w.old = nil
	for n := 1 + w.rng.IntN(8); n > 0 && ctx.Err() == nil; n-- {
		ops := w.plan()
		if w.rng.IntN(6) == 0 && !slices.ContainsFunc(ops, func(op *soakOp) bool { return op.reset }) {
			return w.cut(c, ops)
		}
		if over, err := w.exchange(c, ops); over || err != nil {
			return err
		}
	}
	return nil
}

// lost decides on a connection that has ended: right if the server was ended. The worker takes new chains.
func (w *soakWorker) lost(c *soakConn, err error) error {
	if w.serves(c.number) || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the connection was lost (ZMTP: %t): %w", c.zmtp, err)
	}
	w.count("fault: server ended")
	w.forget()
	return nil
}

// leave leaves a connection open, to be closed much later.
func (w *soakWorker) leave(c *soakConn, why string) {
	w.count("fault: " + why)
	w.hold(c.Conn)
	c.Conn = leftConn{c.Conn}
}

// leftConn is a connection that somebody else closes.
type leftConn struct{ net.Conn }

func (leftConn) Close() error { return nil }

// soakOp is a request and what becomes of it.
type soakOp struct {
	frames [][]byte
	reset  bool
	judge  func(body [][]byte) error // checks the reply, and notes what the request has done
	reply  [][]byte
}

// encode appends the message of a request, whose envelope has its number.
func (op *soakOp) encode(b []byte, i int) []byte {
	return append(b, lookuptest.Encode(append([][]byte{binary.BigEndian.AppendUint32(nil, uint32(i)), nil}, op.frames...)...)...)
}

// exchange sends requests, takes their replies, and judges these in the order of the requests. over says that the
// connection has ended.
func (w *soakWorker) exchange(c *soakConn, ops []*soakOp) (over bool, err error) {
	_ = c.SetDeadline(time.Now().Add(lookuptest.Patience))
	var message []byte
	for i, op := range ops {
		message = op.encode(message, i)
	}
	wrote := make(chan error, 1)
	pieces := w.pieces(message)
	go func() { wrote <- writePieces(c.Conn, pieces) }()
	err = c.readReplies(ops)
	if err != nil {
		_ = c.Close()
	}
	if wrong := (*soakWrong)(nil); errors.As(err, &wrong) {
		return true, err
	}
	if err = errors.Join(err, <-wrote); err != nil {
		return true, w.lost(c, err)
	}
	for i, op := range ops {
		name := string(op.frames[0])
		if err := op.judge(op.reply); err != nil {
			return true, fmt.Errorf("%s, %d of %d (ZMTP: %t): %w: reply %.300q", name, i+1, len(ops), c.zmtp, err, op.reply)
		}
		w.count("request: " + name)
	}
	return false, nil
}

// soakWrong is a reply that nobody has asked for.
type soakWrong struct{ frames [][]byte }

func (e *soakWrong) Error() string {
	return fmt.Sprintf("a reply that was not asked for: %.300q", e.frames)
}

// readReplies reads a reply to each request.
func (c *soakConn) readReplies(ops []*soakOp) error {
	buf := make([]byte, 32<<10)
	for answered := 0; answered < len(ops); {
		frames, n, err := netproto.ParseMessage(c.in, netproto.Limits{}, nil)
		if errors.Is(err, netproto.ErrShort) {
			if n, err = c.Read(buf); err != nil {
				return fmt.Errorf("after %d of %d replies: %w", answered, len(ops), err)
			}
			c.in = append(c.in, buf[:n]...)
			continue
		}
		if err != nil {
			return err
		}
		c.in = slices.Clone(c.in[n:])
		i := len(ops)
		if len(frames) > 2 && len(frames[0]) == 4 && len(frames[1]) == 0 {
			i = int(binary.BigEndian.Uint32(frames[0]))
		}
		if i >= len(ops) || ops[i].reply != nil {
			return &soakWrong{frames}
		}
		ops[i].reply = frames[2:]
		answered++
	}
	return nil
}

// pieces cuts bytes in one of several ways.
func (w *soakWorker) pieces(p []byte) (pieces [][]byte) {
	longest := len(p)
	switch w.rng.IntN(6) {
	case 0:
		longest = max(1, len(p)/300)
	case 1:
		longest = 5000
	}
	for len(p) > 0 {
		n := min(len(p), 1+w.rng.IntN(longest))
		pieces, p = append(pieces, p[:n]), p[n:]
	}
	return pieces
}

// write writes bytes in pieces.
func (w *soakWorker) write(c *soakConn, p []byte) error { return writePieces(c.Conn, w.pieces(p)) }

func writePieces(c net.Conn, pieces [][]byte) error {
	for i, p := range pieces {
		if _, err := c.Write(p); err != nil {
			return err
		}
		if i == len(pieces)/2 && len(pieces) > 1 {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// cut sends a part of some requests and ends the connection in one of several ways.
func (w *soakWorker) cut(c *soakConn, ops []*soakOp) error {
	_ = c.SetDeadline(time.Now().Add(lookuptest.Patience))
	defer w.forget()
	var message []byte
	for i, op := range ops {
		message = op.encode(message, i)
	}
	how := []string{"close", "RST", "half-close", "garbage", "stops in a request"}[w.rng.IntN(5)]
	if how != "garbage" {
		message = message[:w.rng.IntN(len(message))]
	}
	if err := w.write(c, message); err != nil {
		return w.lost(c, err)
	}
	w.count("fault: " + how)
	var err error
	switch how {
	case "RST":
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		return nil
	case "stops in a request":
		w.leave(c, how)
		return nil
	case "close":
		return nil
	case "half-close":
		err = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
	default:
		_, err = c.Write([]byte("\x48" + strings.Repeat("x", w.rng.IntN(2000)))) // reserved flags: no frame
	}
	if _, readErr := io.Copy(io.Discard, c); errors.Is(errors.Join(err, readErr), os.ErrDeadlineExceeded) {
		return fmt.Errorf("not closed after a %s", how)
	}
	return nil
}

// --- Requests and their answers ------------------------------------------------

// isDone judges the reply to a request that can be served.
func isDone(body [][]byte) error {
	if string(body[0]) != "\x01" {
		return errors.New("want 01")
	}
	return nil
}

// plan makes some requests.
func (w *soakWorker) plan() (ops []*soakOp) {
	for n := 1 + w.rng.IntN(40); len(ops) < n; {
		switch r := w.rng.IntN(100); {
		case r < 50:
			ops = append(ops, w.ask("lookup"))
		case r < 56:
			ops = append(ops, w.ask("explain"))
		case r < 74:
			ops = append(ops, w.store()...)
		case r < 82:
			place := w.rng.IntN(len(w.chains[0].stored))
			ops = append(ops, w.change("evict", w.chains[w.rng.IntN(6)], place, w.rng.IntN(4) == 0))
		case r < 90:
			echo := make([]byte, w.rng.IntN(300))
			ops = append(ops, &soakOp{frames: frames("ping", echo, "x"), judge: func(body [][]byte) error {
				if len(body) != 3 || string(body[1]) != string(echo) || string(body[2]) != "x" {
					return errors.New("another echo")
				}
				return isDone(body)
			}})
		case r < 92:
			ops = append(ops, &soakOp{frames: frames("stat"), judge: w.judgeStat})
		case r == 92 && w.pool != "":
			ops = append(ops, w.clear())
		default:
			ops = append(ops, w.bad())
		}
	}
	return ops
}

// clear makes a reset of the worker's own pool.
func (w *soakWorker) clear() *soakOp {
	return &soakOp{reset: true, frames: frames("reset"), judge: func(body [][]byte) error {
		for _, chain := range w.chains {
			for _, place := range chain.stored {
				clear(place)
			}
		}
		return isDone(body)
	}}
}

// bad makes a request that can be framed and not served.
func (w *soakWorker) bad() *soakOp {
	rank, outside := make([]byte, 6), []byte{0xff, 0, 0, 0, 0, 0}
	hashLen, hash := binary.BigEndian.AppendUint16(nil, uint16(w.cfg.Pool.HashLen)), w.chains[0].hashes[:w.cfg.Pool.HashLen]
	body := [][][]byte{
		frames("nonsense"), frames("LOOKUP", 16, hashLen, hash), frames("lookup", 64, hashLen), frames("lookup", 64, []byte{0, 65}, make([]byte, 65)),
		frames("lookup", 3, hashLen, hash), frames("store", outside, hashLen, hash), frames("evict", outside, hashLen, hash),
		frames("store", rank, []byte{0, 0}, hash), frames("store", rank, []byte{0, 24}, make([]byte, 24)), frames("store", rank, hashLen, ""),
		frames("store", rank, hashLen, hash[1:]), frames("store", rank[:5], hashLen, hash), frames("evict", rank, hashLen),
		frames("ping", make([]byte, 64<<10+1)),
	}
	return &soakOp{frames: body[w.rng.IntN(len(body))], judge: func(body [][]byte) error {
		if string(body[0]) != "\x00" {
			return errors.New("want 00")
		}
		return nil
	}}
}

func (w *soakWorker) judgeStat(body [][]byte) error {
	var st api.Stat
	if len(body) != 2 || json.Unmarshal(body[1], &st) != nil || st.Connections < 1 || st.Bytes > st.MaxBytes || st.AcceptErrors != 0 ||
		w.pool == "" && st.MaxEntries > 0 && st.Entries > st.MaxEntries {
		return errors.New("that cannot be")
	}
	return isDone(body)
}

// store makes stores: of a whole chain in all places, or of a part of it in one.
func (w *soakWorker) store() (ops []*soakOp) {
	chain := w.chains[w.rng.IntN(6)]
	if w.rng.IntN(3) == 0 {
		return append(ops, w.change("store", chain, w.rng.IntN(len(chain.stored)), false))
	}
	for place := range chain.stored {
		ops = append(ops, w.change("store", chain, place, true))
	}
	return ops
}

// change makes a store or an evict of a run of chunks of a chain, or of all of them. If it has none, it is a ping.
func (w *soakWorker) change(kind string, chain *soakChain, place int, all bool) *soakOp {
	group, rank := place/w.cfg.Pool.TPSize, place%w.cfg.Pool.TPSize
	stride, hashLen := w.rules.Stride(group), w.cfg.Pool.HashLen
	from, to := 0, chain.length/stride
	if to == 0 {
		return &soakOp{frames: frames("ping", "x"), judge: isDone}
	}
	if !all {
		from = w.rng.IntN(to)
		to = from + 1 + w.rng.IntN(to-from)
	}
	var keys []int
	var blob []byte
	for i := from; i < to; i++ {
		key := coordinator.KeyIndex(i, stride)
		keys, blob = append(keys, key), append(blob, chain.hashes[key*hashLen:(key+1)*hashLen]...)
	}
	return &soakOp{
		frames: frames(kind, []byte{0, byte(group), 0, byte(rank), 0, 0}, binary.BigEndian.AppendUint16(nil, uint16(hashLen)), blob),
		judge: func(body [][]byte) error {
			for _, key := range keys {
				chain.stored[place][key] = kind == "store"
			}
			return isDone(body)
		},
	}
}

// ask makes a lookup or an explain of hashes of a chain, sometimes followed by those of another one, or by none that is
// stored.
func (w *soakWorker) ask(kind string) *soakOp {
	hashLen := w.cfg.Pool.HashLen
	var keys []soakKey
	var blob []byte
	add := func(chain *soakChain, from, to int) {
		for i := from; i < to; i++ {
			keys = append(keys, soakKey{chain, i})
		}
		blob = append(blob, chain.hashes[from*hashLen:to*hashLen]...)
	}
	chain := w.chains[w.rng.IntN(6)]
	from, to := 0, chain.length
	if w.rng.IntN(3) == 0 {
		to = 1 + w.rng.IntN(to)
	}
	if w.rng.IntN(4) == 0 { // hashes are opaque: a request may begin with any
		from = w.rng.IntN(to)
	}
	add(chain, from, to)
	if other := w.chains[w.rng.IntN(6)]; w.rng.IntN(6) == 0 && other != chain {
		add(other, w.rng.IntN(other.length), other.length)
	}
	if w.rng.IntN(8) == 0 {
		n := 1 + w.rng.IntN(200)
		keys = append(keys, make([]soakKey, n)...)
		blob = append(blob, lookuptest.Chain(fmt.Sprint("none ", w.rng.Uint64()), n, hashLen)...)
	}
	align := w.rules.Alignment()
	tokens := int64(len(keys)) * 16 / align * align
	switch w.rng.IntN(12) {
	case 0:
		tokens = align * w.rng.Int64N(tokens/align+1)
	case 1:
		tokens += align * w.rng.Int64N(20)
	case 2:
		tokens++ // not aligned
	}
	return &soakOp{
		frames: lookupFrames(kind, int(tokens), binary.BigEndian.AppendUint16(nil, uint16(hashLen)), blob),
		judge:  func(body [][]byte) error { return w.judgeHit(kind, body, tokens, keys) },
	}
}

// presence is what the worker knows of the hashes of a lookup.
func (w *soakWorker) presence(tokens int64, keys []soakKey) (p coordinator.Presence) {
	p.NumHashes = len(keys)
	length, err := w.rules.TokenLen(tokens)
	for g := range w.cfg.Pool.Groups {
		stride, positions, mask := w.rules.KeyStride(g), 0, w.rules.KeyMask(g)
		if err == nil {
			positions = w.rules.Positions(g, length, len(keys))
		}
		bits := make([]uint64, (positions+63)/64)
		for i := range positions {
			key := keys[coordinator.KeyIndex(i, stride)]
			stored := key.chain != nil && mask.At(int64(i))
			for r := 0; stored && r < w.cfg.Pool.TPSize; r++ {
				stored = key.chain.stored[g*w.cfg.Pool.TPSize+r][key.index]
			}
			if stored {
				bits[i/64] |= 1 << (i % 64)
			}
		}
		p.Bits = append(p.Bits, bits)
	}
	return p
}

// judgeHit compares the reply to a lookup or an explain with the rule over what is stored. In a pool that is bounded,
// keys may be gone: then the hit is at most that.
func (w *soakWorker) judgeHit(kind string, body [][]byte, tokens int64, keys []soakKey) error {
	p := w.presence(tokens, keys)
	want, wantErr := w.rules.Answer(&p, tokens, new(coordinator.Scratch))
	if string(body[0]) == "\x00" {
		if wantErr == nil {
			return fmt.Errorf("want a hit of %d", want.Tokens)
		}
		return nil
	}
	if wantErr != nil {
		return fmt.Errorf("want 00: %w", wantErr)
	}
	var hit int64
	var explanation api.Explanation
	switch {
	case kind == "lookup" && len(body) == 1 && len(body[0]) == 4:
		hit = int64(binary.BigEndian.Uint32(body[0]))
	case kind == "explain" && len(body) == 2 && string(body[0]) == "\x01" && json.Unmarshal(body[1], &explanation) == nil:
		hit = explanation.HitTokens
	default:
		return errors.New("want another form of reply")
	}
	mayBeGone := w.cfg.MaxEntries > 0 && w.pool == ""
	if hit > want.Tokens || hit < want.Tokens && !mayBeGone {
		return fmt.Errorf("a hit of %d, want %d", hit, want.Tokens)
	}
	if hit > 0 {
		w.count("lookups that hit")
	}
	return nil
}
