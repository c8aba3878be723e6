package mooncake

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
)

// testTimeout bounds waits that are short on an idle machine.
const testTimeout = 20 * time.Second

// request is a request that a fakeMaster has read.
type request struct {
	net.Conn
	function, seq uint32
	keys          []string // none for the first question of a connection
}

// write sends a reply, after which the connection may be closed.
func (q *request) write(reply []byte) { _, _ = q.Conn.Write(reply) }

// fakeMaster is a master whose replies a test can set. It takes the given forms.
type fakeMaster struct {
	addr  string
	debug bool // encodes as a debug build

	mu       sync.Mutex
	forms    []Form
	oldest   bool // RemoveAll has no arguments
	present  map[string]int
	probes   bool   // it knows BatchProbeKey
	lease    uint64 // in milliseconds, that GetReplicaList states; 0: it does not know the function
	view     uint64 // version that Ping states
	closed   bool
	listener net.Listener
	conns    map[net.Conn]bool
	running  sync.WaitGroup

	// reply, if set, answers requests except the first one of a connection. normal is the right reply.
	// always, if set, answers all requests.
	reply, always atomic.Pointer[func(q *request, normal []byte)]

	leaseAsked, pinged, identified, probed, accepted, numQueries, inFlight, maxInFlight, resets atomic.Int64
}

func startFake(t testing.TB, addr string, forms ...Form) *fakeMaster {
	t.Helper()
	f := &fakeMaster{forms: forms, lease: 2000, present: map[string]int{"here": 1, "there": 1}, conns: map[net.Conn]bool{}}
	var err error
	f.listener, err = net.Listen("tcp", addr)
	require.NoError(t, err)
	f.addr = f.listener.Addr().String()
	f.running.Go(f.accept)
	t.Cleanup(f.stop)
	return f
}

func (f *fakeMaster) setPresent(keys map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.present = keys
}

func (f *fakeMaster) setView(view uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view = view
}

func (f *fakeMaster) setReply(do func(q *request, normal []byte)) { f.reply.Store(&do) }
func (f *fakeMaster) resetReply()                                 { f.reply.Store(nil) }

// stop closes the listener and all connections, as the end of the process would.
func (f *fakeMaster) stop() {
	f.listener.Close()
	f.closeConns()
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.closeConns()
	f.running.Wait()
}

// closeConns closes all connections.
func (f *fakeMaster) closeConns() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		c.Close()
	}
}

func (f *fakeMaster) numConns() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

func (f *fakeMaster) accept() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.accepted.Add(1)
		f.mu.Lock()
		if f.closed {
			c.Close()
		}
		f.conns[c] = true
		f.mu.Unlock()
		f.running.Go(func() {
			f.serve(c)
			c.Close()
			f.mu.Lock()
			delete(f.conns, c)
			f.mu.Unlock()
		})
	}
}

func (f *fakeMaster) serve(c net.Conn) {
	head := make([]byte, requestLen)
	for isFirst := true; ; {
		if _, err := io.ReadFull(c, head); err != nil || head[0] != magic {
			return
		}
		body := make([]byte, le.Uint32(head[12:]))
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		q := &request{Conn: c, function: le.Uint32(head[8:]), seq: le.Uint32(head[4:])}
		code, result := f.handle(q, body)
		normal := response(code, q.seq, result)
		if isFirst && q.function == fnBatchExistKey {
			if isFirst = code != 0; len(q.keys) > 0 {
				f.identified.Add(1)
			}
			q.keys = nil
		}
		if len(q.keys) > 0 {
			f.numQueries.Add(1)
		}
		f.maxInFlight.Store(max(f.maxInFlight.Load(), f.inFlight.Add(1)))
		if do := f.always.Load(); do != nil {
			(*do)(q, normal)
		} else if do := f.reply.Load(); do != nil && (len(q.keys) > 0 || q.function == fnRemoveAll) {
			(*do)(q, normal)
		} else {
			q.write(normal)
		}
		f.inFlight.Add(-1)
	}
}

func response(code byte, seq uint32, body []byte) []byte {
	b := le.AppendUint32([]byte{magic, 0, code, 0}, seq)
	b = le.AppendUint32(b, uint32(len(body)))
	return append(le.AppendUint32(b, 0), body...)
}

func (f *fakeMaster) handle(q *request, body []byte) (code byte, result []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch q.function {
	case fnBatchExistKey:
		return f.exist(q, body)
	case fnBatchProbeKey:
		f.probed.Add(1)
		return f.probe(body)
	case fnServiceReady:
		result, width := openBody(typeVersion, 5, f.debug)
		return 0, append(appendLen(append(result, 1), width, 5), "9.8.7"...)
	case fnRemoveAll:
		return f.removeAll(body)
	case fnPing:
		f.pinged.Add(1)
		result, _ := openBody(typeView, 0, f.debug)
		return 0, append(le.AppendUint64(append(result, 1), f.view), 2, 0, 0, 0)
	case fnGetReplicaList:
		return f.replicas(body)
	}
	return codeNotRegister, textBody("the rpc function not registered")
}

func (f *fakeMaster) exist(q *request, body []byte) (code byte, result []byte) {
	for _, form := range f.forms {
		typ := typeKeys
		if form == FormTenant {
			typ = typeKeysTenant
		}
		r := newReader(body, typ)
		q.keys = make([]string, r.length())
		for i := range q.keys {
			q.keys[i] = string(r.bytes(r.length()))
		}
		if form == FormTenant {
			r.bytes(r.length())
		}
		if r.end() != nil {
			continue
		}
		answers := make([]int, len(q.keys))
		for i, key := range q.keys {
			answers[i] = f.present[key]
		}
		return 0, existBody(answers, f.debug)
	}
	q.keys = nil
	return codeArguments, textBody("invalid rpc arg")
}

func (f *fakeMaster) probe(body []byte) (code byte, result []byte) {
	r := newReader(body, typeProbe)
	r.bytes(16)
	answers := make([]int, r.length())
	for i := range answers {
		answers[i] = f.present[string(r.bytes(r.length()))]
	}
	if r.bytes(r.length()); r.end() != nil || !f.probes {
		return codeNotRegister, textBody("the rpc function not registered")
	}
	return 0, existBody(answers, f.debug)
}

// replicas answers GetReplicaList for a key without a copy, which no real master has.
func (f *fakeMaster) replicas(body []byte) (code byte, result []byte) {
	f.leaseAsked.Add(1)
	r := newReader(body, typeKeyTenant)
	key := r.bytes(r.length())
	if r.bytes(r.length()); r.end() != nil || f.lease == 0 {
		return codeNotRegister, textBody("the rpc function not registered")
	}
	result, _ = openBody(typeReplicas, 0, f.debug)
	if f.present[string(key)] != 1 {
		return 0, le.AppendUint32(append(result, 0), uint32(0xfffffd40)) // not found
	}
	return 0, append(le.AppendUint64(append(result, 1, 0), f.lease), 0)
}

func (f *fakeMaster) removeAll(body []byte) (code byte, result []byte) {
	want := appendRemoveAll(nil, f.forms[0], DefaultTenant)
	if f.oldest {
		want = nil
	}
	if string(body) != string(want) {
		return codeArguments, textBody("invalid rpc arg")
	}
	f.resets.Add(1)
	removed := len(f.present)
	clear(f.present)
	result, _ = openBody(typeCount, 0, f.debug)
	return 0, le.AppendUint64(result, uint64(removed))
}

// newClient returns a client that is closed with the test. DialTimeout is testTimeout unless
// cfg sets it.
func newClient(t testing.TB, cfg Config) *Client {
	t.Helper()
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = testTimeout
	}
	c, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// waitFilled waits until c has dialled all its connections.
func waitFilled(t testing.TB, c *Client) {
	t.Helper()
	eventually(t, "all connections are idle", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.idle) == c.cfg.Conns && c.tokens.Held() == 0
	})
}

// contextWithin returns a context that ends after d.
func contextWithin(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// checkExists checks the answers for keys of which the first two are present.
func checkExists(t testing.TB, c *Client) {
	t.Helper()
	answers, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here", "there", "nowhere"}, false)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 0}, answers)
}

// eventually waits until condition holds; what describes it.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !condition(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), what)
	}
}
