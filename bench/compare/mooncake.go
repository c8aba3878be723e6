package compare

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"github.com/hitline/hitline/bench/wire"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hitline/hitline/backend/mooncake"
	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// startMooncake starts a master. Only an engine's node can put blocks into its
// store, and there is none, so all keys are absent.
func (s *servers) startMooncake(ctx context.Context) ([]*rival, error) {
	if s.o.MooncakeMaster == "" {
		return nil, missing("name the program with --mooncake-master; it is in the wheel mooncake-transfer-engine-non-cuda, as mooncake/mooncake_master")
	}
	path, err := process.FindProgram(s.o.MooncakeMaster, "", "")
	if err != nil {
		return nil, err
	}
	cmd, addr, err := process.MooncakeMaster(path)
	if err != nil {
		return nil, err
	}
	p, err := s.launch(ctx, cmd, func([]byte) (string, bool) { return addr, true }) // it says something first of all
	if err != nil {
		return nil, err
	}
	master, err := dialMaster(addr)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { _ = master.Close() }) // nothing is lost with it
	version, err := process.AwaitMaster(ctx, master, s.o.Timeout)
	if err != nil {
		return nil, err
	}
	r := rival{name: MooncakeExists, version: "mooncake_master " + version, allMiss: true, server: p}
	return []*rival{
		r.in(Prepared, rawSocket, func(ctx context.Context, w *lookups) (client, error) {
			conn, err := dialRaw(ctx, wire.Server{Address: "tcp://" + addr, Timeout: s.o.Timeout})
			return oneByOne{&masterRawClient{rawConn: conn, addr: addr, load: w, timeout: s.o.Timeout}}, err
		}),
		r.in(Usual, rivalKinds[MooncakeExists].client, func(_ context.Context, w *lookups) (client, error) {
			return oneByOne{&masterClient{client: master, load: w, timeout: s.o.Timeout}}, nil
		}),
	}, nil
}

func dialMaster(addr string) (*mooncake.Client, error) {
	return mooncake.New(mooncake.Config{Masters: []string{addr}, Conns: 1})
}

// masterKeys makes the keys that an engine asks for.
type masterKeys struct {
	c   *coordinator.Coordinator
	key []byte // reused
}

func newMasterKeys(w *lookups) (*masterKeys, error) {
	c, err := coordinator.New(coordinator.Pool{ModelName: "m", HashBlockSize: int(w.Tokens(1))})
	return &masterKeys{c: c}, err
}

func (k *masterKeys) of(hash []byte) string {
	k.key = k.c.AppendKey(k.key[:0], 0, 0, hash)
	return string(k.key)
}

// ofChain returns the keys of a chain.
func (k *masterKeys) ofChain(w *lookups, chain int) []string {
	hashes := netproto.NewHashes(w.Chain(chain), hashLen)
	keys := make([]string, w.Hashes())
	for block := range keys {
		keys[block] = k.of(hashes.At(block))
	}
	return keys
}

// masterClient asks a master whether keys exist, by the client of this module.
type masterClient struct {
	client  *mooncake.Client
	load    *lookups
	timeout time.Duration
	maker   *masterKeys
	keys    [][]string // of each chain
}

func (c *masterClient) prepare(context.Context) (err error) {
	c.maker, err = newMasterKeys(c.load)
	for i := 0; err == nil && i < c.load.Len(); i++ {
		c.keys = append(c.keys, c.maker.ofChain(c.load, i))
	}
	return err
}

func (c *masterClient) askOne(ctx context.Context, l workload.Lookup) (answer, error) {
	keys := c.keys[l.Chain]
	if !c.load.Hits(l) {
		keys[l.Stored] = c.maker.of(l.Absent[:])
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	start := time.Now()
	there, err := c.client.Exists(ctx, keys)
	if err == nil && len(there) != len(keys) {
		err = fmt.Errorf("%w: %d answers to %d keys", measure.ErrAnswer, len(there), len(keys))
	}
	if err != nil {
		return answer{}, wire.Lost(err)
	}
	blocks := slices.IndexFunc(there, func(a int) bool { return a != 1 })
	if blocks < 0 {
		blocks = len(there)
	}
	return answer{c.load.Tokens(blocks), time.Since(start)}, nil
}

func (c *masterClient) close() {}

// masterRawClient asks a master by bytes that were made before. It takes them, and the
// reply to keys that are all absent, from one call of the client of this module. All
// keys have the same length, so other requests differ in their hashes only.
type masterRawClient struct {
	rawConn
	addr     string
	load     *lookups
	timeout  time.Duration
	requests *requestSet
	absent   []byte // the reply if nothing is there
	reply    []byte // room for one and a little
}

// hexHash is how the keys have a hash.
func hexHash(to, hash []byte) { hex.Encode(to, hash) }

func (c *masterRawClient) prepare(ctx context.Context) error {
	maker, err := newMasterKeys(c.load)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	template, reply, err := recordExists(ctx, c.addr, maker.ofChain(c.load, 0))
	if err != nil {
		return fmt.Errorf("recording a request: %w", err)
	}
	first, stride, err := findHashes(template, c.load)
	if err != nil {
		return err
	}
	c.requests = c.load.prepared("BatchExistKey", template, first, stride, hexHash)
	c.absent, c.reply = reply, make([]byte, len(reply)+64)
	return nil
}

// findHashes returns where the hashes of the first chain are in a request, in hex.
func findHashes(request []byte, w *lookups) (first, stride int, err error) {
	at := func(block int) int { return bytes.Index(request, []byte(hex.EncodeToString(w.Hash(0, block)))) }
	last := w.Hashes() - 1
	first = at(0)
	if last > 0 {
		stride = (at(last) - first) / last
	}
	if first < 0 || at(last) != first+last*stride || at(last/2) != first+last/2*stride {
		return 0, 0, fmt.Errorf("%w: the recorded request to the master has no hashes at equal distances", measure.ErrAnswer)
	}
	return first, stride, nil
}

func (c *masterRawClient) askOne(_ context.Context, l workload.Lookup) (answer, error) {
	request := c.requests.put(l)
	start := time.Now()
	_, err := c.Write(request)
	var reply []byte
	if err == nil {
		reply, err = c.ReadReply(c.reply, len(c.absent), c.absent[:1])
	}
	if err == nil && !bytes.Equal(reply, c.absent) {
		err = fmt.Errorf("%w: another than if all keys are absent", measure.ErrAnswer)
	}
	took := time.Since(start)
	if err != nil {
		return answer{}, err
	}
	return answer{0, took}, nil
}

// recordExists asks the master at addr for keys and returns the bytes of the request
// and of the reply.
func recordExists(ctx context.Context, addr string, keys []string) (request, reply []byte, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	p := &recorder{addr: addr, listener: listener}
	p.running.Go(p.accept)
	defer p.running.Wait()
	defer p.stop()
	client, err := dialMaster(listener.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = client.Close() }() // nothing is lost with it
	if _, err := process.AwaitMaster(ctx, client, time.Hour); err != nil {
		return nil, nil, err
	}
	p.reset()
	there, err := client.Exists(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	if slices.Max(there) != 0 {
		return nil, nil, fmt.Errorf("%w: a key is there that nobody stored", measure.ErrAnswer)
	}
	request, reply = p.recorded([]byte(keys[0]))
	if request == nil {
		return nil, nil, fmt.Errorf("%w: no request with the keys was sent", measure.ErrAnswer)
	}
	return request, reply, nil
}

// recorder forwards connections to a server and keeps their bytes.
type recorder struct {
	addr     string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex // guards what follows
	stopped bool
	pairs   []*recording
}

// recording is what went over a connection.
type recording struct {
	ends           [2]net.Conn
	request, reply []byte
}

func (r *recording) close() {
	r.ends[0].Close()
	r.ends[1].Close()
}

// accept forwards connections until the listener is closed.
func (p *recorder) accept() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.addr)
		if err != nil {
			from.Close()
			continue
		}
		r := &recording{ends: [2]net.Conn{from, to}}
		p.mu.Lock()
		p.pairs = append(p.pairs, r)
		if p.stopped {
			r.close()
		}
		p.mu.Unlock()
		p.running.Go(func() { p.forward(r, to, from, &r.request) })
		p.running.Go(func() { p.forward(r, from, to, &r.reply) })
	}
}

// forward copies one direction, and ends both with it.
func (p *recorder) forward(r *recording, to, from net.Conn, keep *[]byte) {
	defer r.close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		*keep = append(*keep, b[:n]...)
		p.mu.Unlock()
		if _, failed := to.Write(b[:n]); err != nil || failed != nil {
			return // either side has closed
		}
	}
}

// reset forgets what went over the connections so far.
func (p *recorder) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.pairs {
		r.request, r.reply = nil, nil
	}
}

// recorded returns the request that has a text, and its reply.
func (p *recorder) recorded(text []byte) (request, reply []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.pairs {
		if bytes.Contains(r.request, text) {
			return r.request, r.reply
		}
	}
	return nil, nil
}

func (p *recorder) stop() {
	p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	for _, r := range p.pairs {
		r.close()
	}
}
