package lookup

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/netproto"
)

func TestConformanceWorkerLookup(t *testing.T) {
	conformWorker(t, "worker_lookup.json", coordinator.Revision20260620)
}

func TestConformanceWorkerLookup20260817(t *testing.T) {
	conformWorker(t, "later/worker_lookup.json", coordinator.Revision20260817)
}

// conformWorker judges each case: asked of an external store by keys, by a service
// whose backend is this store, asking all, and, where the store answers properly, by
// one that gallops and by one whose index holds the same.
func conformWorker(t *testing.T, file string, revision coordinator.Revision) {
	conformance.Run(t, file, func(c *conformance.WorkerCase) conformance.Verdict {
		pool, err := poolOf(c, revision)
		if err != nil {
			return conformance.Differs("pool: %v", err)
		}
		if v := judgeExternal(c, pool); v != (conformance.Verdict{}) {
			return v
		}
		if v := judgeBackend(c, pool); v != (conformance.Verdict{}) {
			return v
		}
		if c.Store == "normal" {
			if v := judgeGallop(c, pool); v != (conformance.Verdict{}) {
				return v
			}
			return judgeService(c, pool)
		}
		return conformance.Verdict{}
	})
}

func poolOf(c *conformance.WorkerCase, revision coordinator.Revision) (pool coordinator.Pool, err error) {
	err = json.Unmarshal(c.Raw, &pool)
	pool.Revision = revision
	return pool, err
}

func judgeExternal(c *conformance.WorkerCase, pool coordinator.Pool) conformance.Verdict {
	coord, err := coordinator.New(pool)
	if err != nil {
		return conformance.Differs("coordinator: %v", err)
	}
	store, err := c.NewStore()
	if err != nil {
		return conformance.Differs("store: %v", err)
	}
	hit, err := coord.Ask(c.TokenLen, netproto.NewHashes(c.Blob(), c.HashLen), store.Exists)
	return c.Judge(store, hit, err, classOf(err))
}

// scriptedStore is a backend over the store of a case.
type scriptedStore struct {
	keyStore
	script *conformance.Store
}

func (s *scriptedStore) Exists(_ context.Context, keys []string) ([]int, error) {
	return s.script.Exists(keys)
}

// judgeBackend asks a service over the store, with all hashes and with only those
// that a request over the wire keeps.
func judgeBackend(c *conformance.WorkerCase, pool coordinator.Pool) conformance.Verdict {
	hashes := netproto.NewHashes(c.Blob(), c.HashLen)
	for _, kept := range []bool{false, true} {
		store, err := c.NewStore()
		if err != nil {
			return conformance.Differs("store: %v", err)
		}
		s, err := NewService(ServiceConfig{Pool: pool, Backend: &scriptedStore{script: store}, Remote: RemoteConfig{Timeout: patience, Strategy: AskAll}})
		if err != nil {
			return conformance.Differs("service over a backend: %v", err)
		}
		if kept {
			n, err := s.needed(c.TokenLen, hashes.Len())
			if err != nil {
				n = hashes.Len()
			}
			hashes = netproto.NewHashes(hashes.Bytes()[:n*c.HashLen], c.HashLen)
		}
		hit, err := s.Lookup(uint64(c.TokenLen), hashes)
		if v := c.Judge(store, int64(hit), err, classOf(err)); v != (conformance.Verdict{}) {
			return conformance.Differs("service over a backend (cut: %v): %s", kept, v.Differs)
		}
		if failed := s.Stat().BackendErrors; failed != int64(c.Expect.StoreCalls) && c.Store == "raises" {
			return conformance.Differs("%d backend errors counted", failed)
		}
	}
	return conformance.Verdict{}
}

// judgeGallop asks a service over the store in rounds. Only the answer is compared:
// the recorded keys are those of one call.
func judgeGallop(c *conformance.WorkerCase, pool coordinator.Pool) conformance.Verdict {
	store, err := c.NewStore()
	if err != nil {
		return conformance.Differs("store: %v", err)
	}
	s, err := NewService(ServiceConfig{Pool: pool, Backend: &scriptedStore{script: store}, Remote: patient})
	if err != nil {
		return conformance.Differs("service over a backend: %v", err)
	}
	hit, err := s.Lookup(uint64(c.TokenLen), netproto.NewHashes(c.Blob(), c.HashLen))
	if class := classOf(err); class != c.Expect.Error {
		return conformance.Differs("galloping: error %q (%v), want %q", class, err, c.Expect.Error)
	}
	if err == nil && int64(hit) != c.Expect.HitLength {
		return conformance.Differs("galloping: hit %d, want %d", hit, c.Expect.HitLength)
	}
	return conformance.Verdict{}
}

// classOf names the reference's exception class for an error.
func classOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, coordinator.ErrPrecondition):
		return "AssertionError"
	case errors.Is(err, coordinator.ErrIndexOutOfRange):
		return "IndexError"
	case errors.Is(err, coordinator.ErrAnswerCount):
		return "ValueError"
	}
	return err.Error()
}

func judgeService(c *conformance.WorkerCase, pool coordinator.Pool) conformance.Verdict {
	s, err := NewService(ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: 16 << 20}})
	if err != nil {
		return conformance.Differs("service: %v", err)
	}
	content, err := c.Content()
	if err != nil {
		return conformance.Differs("content: %v", err)
	}
	for key := range content {
		place, hash, err := parseKey(key)
		if err != nil {
			return conformance.Differs("key %q: %v", key, err)
		}
		switch err := s.Store(place, hash, len(hash)); {
		case errors.Is(err, ErrPlace) && !isAsked(s, place): // noise on a rank that holds no block of its own
		case err != nil:
			return conformance.Differs("store %q: %v", key, err)
		}
	}
	hashes := netproto.NewHashes(c.Blob(), c.HashLen)
	for _, piece := range []int{hashes.Len(), 1, 3, 64} {
		hit, err := lookupPieces(s, uint64(c.TokenLen), hashes, max(piece, 1))
		if class := classOf(err); class != c.Expect.Error {
			return conformance.Differs("service: error %q (%v), want %q, hashes in pieces of %d", class, err, c.Expect.Error, piece)
		}
		if err == nil && int64(hit) != c.Expect.HitLength {
			return conformance.Differs("service: hit %d, want %d, hashes in pieces of %d", hit, c.Expect.HitLength, piece)
		}
	}
	return conformance.Verdict{}
}

// isAsked tells whether lookups ask for the blocks of a place.
func isAsked(s *Service, at Place) bool {
	return slices.ContainsFunc(s.coord.Ranks(int(at.Group)), func(r coordinator.Rank) bool {
		return r.TP == int(at.TPRank) && r.PP == int(at.PPRank) && r.PCP == int(at.PCPRank)
	})
}

// lookupPieces is Service.Lookup with the hashes arriving so many at a time.
func lookupPieces(s *Service, numTokens uint64, hashes netproto.Hashes, piece int) (uint32, error) {
	if piece == hashes.Len() {
		return s.Lookup(numTokens, hashes)
	}
	q := s.queries.Get().(*query)
	defer q.release()
	unaligned := numTokens%uint64(s.coord.Alignment()) != 0
	if err := q.begin(numTokens, unaligned, hashes.HashLen(), hashes.Len()); err != nil {
		return 0, err
	}
	for rest := hashes.Bytes(); len(rest) > 0; {
		n := min(len(rest), piece*hashes.HashLen())
		if !q.add(rest[:n:n]) {
			break
		}
		rest = rest[n:]
	}
	return q.finish()
}

// parseKey takes a key apart:
// ...@tp_rank:T@pcpX@dcpY@pp_rank:P@group:G@hash.
func parseKey(key string) (at Place, hash []byte, err error) {
	parts := strings.Split(key, "@")
	if len(parts) < 7 {
		return at, nil, errors.New("too few parts")
	}
	parts = parts[len(parts)-6:]
	for i, f := range []struct {
		prefix string
		into   *uint16
	}{{"tp_rank:", &at.TPRank}, {"pcp", &at.PCPRank}, {"dcp", new(uint16)}, {"pp_rank:", &at.PPRank}, {"group:", &at.Group}} {
		n, err := strconv.ParseUint(strings.TrimPrefix(parts[i], f.prefix), 10, 16)
		if err != nil {
			return at, nil, err
		}
		*f.into = uint16(n)
	}
	hash, err = hex.DecodeString(parts[5])
	return at, hash, err
}

// wireServerCase is one request to an empty server.
type wireServerCase struct {
	ID              string              `json:"id"`
	Frames          []string            `json:"frames"`
	HashLen         int                 `json:"hash_len"`
	Present         []conformance.Range `json:"present"`
	Store           string              `json:"store"`
	Reply           *string             `json:"reply"`
	ThreadDied      string              `json:"server_thread_died"`
	RemoveAllRaises bool                `json:"remove_all_raises"`
	RemoveAllCalls  *int64              `json:"remove_all_calls"`
}

// wireClientCase is one call of the client and the scripted reply.
type wireClientCase struct {
	ID         string          `json:"id"`
	Call       string          `json:"call"`
	TokenLen   int64           `json:"token_len"`
	HashLen    int             `json:"hash_len"`
	NumHashes  int             `json:"num_hashes"`
	HashBytes  string          `json:"hash_bytes"`
	OneShort   bool            `json:"last_hash_one_byte_short"`
	Frames     []string        `json:"frames"`
	Reply      *string         `json:"reply"`
	Result     json.RawMessage `json:"result"`
	blob       []byte
	sentFrames []string
}

func TestConformanceWire(t *testing.T) {
	var file struct {
		Cases        []wireClientCase `json:"cases"`
		ServerCases  []wireServerCase `json:"server_cases"`
		ServerConfig json.RawMessage  `json:"server_config"`
	}
	conformance.Load(t, "wire.json", &file)
	report := conformance.NewReport(t, "wire.json")
	for i := range file.Cases {
		report.Add(file.Cases[i].ID, file.Cases[i].judge(t))
	}
	var pool coordinator.Pool
	require.NoError(t, json.Unmarshal(file.ServerConfig, &pool))
	server := startServer(t, ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: 4 << 20}}, Limits{})
	remote := conformance.NewReport(t, "wire.json over a remote backend")
	for i := range file.ServerCases {
		c := &file.ServerCases[i]
		store := c.backend()
		overBackend := c.judge(t, startServer(t, ServiceConfig{Pool: pool, Backend: store, Remote: patient}, Limits{}))
		if want := c.RemoveAllCalls; want != nil && store.resets.Load() != *want {
			overBackend = conformance.Differs("%d calls of reset, want %d", store.resets.Load(), *want)
		}
		remote.Add(c.ID, overBackend)
		if c.needsBackend() {
			report.Add(c.ID, overBackend)
			continue
		}
		require.NoError(t, server.service.Reset())
		report.Add(c.ID, c.judge(t, server))
	}
	report.Done()
	remote.Done()
}

// needsBackend tells whether the case's store does what the memory index cannot.
func (c *wireServerCase) needsBackend() bool {
	return c.Store != "normal" && c.Store != "" || c.RemoveAllRaises
}

// backend returns the case's store, empty: judge fills it.
func (c *wireServerCase) backend() *keyStore {
	k := &keyStore{}
	k.before = func(_ context.Context, op string, _ []string) error {
		if op == "exists" && c.Store == "raises" || op == "reset" && c.RemoveAllRaises {
			return errStore
		}
		return nil
	}
	k.answer = func(answers []int) []int {
		for i := range answers {
			switch {
			case c.Store == "twos" && answers[i] == 1:
				answers[i] = 2
			case c.Store == "negative" && answers[i] == 0:
				answers[i] = -1
			}
		}
		switch c.Store {
		case "short_result":
			return answers[:len(answers)-1]
		case "long_result":
			return append(answers, 1)
		}
		return answers
	}
	return k
}

// ownRequests are answered by hitline and unknown to the reference, which
// answers them 00.
var ownRequests = []string{"explain", "store", "evict", "ping", "stat"}

func (c *wireServerCase) judge(t *testing.T, server *Server) conformance.Verdict {
	for _, r := range c.Present {
		for i := r[0]; i < r[1]; i++ {
			require.NoError(t, server.service.Store(Place{}, conformance.Hash(c.ID, i, c.HashLen), c.HashLen))
		}
	}
	frames := [][]byte{{}} // the delimiter of a REQ socket
	for _, f := range c.Frames {
		b, err := hex.DecodeString(f)
		require.NoError(t, err)
		frames = append(frames, b)
	}
	p := dialPeer(t, server)
	reply := p.ask(t, frames...)
	defer func() {
		require.Equal(t, [][]byte{{}, {netproto.StatusDone}}, p.ask(t, nil, []byte("ping")), "%s: the server lives", c.ID)
	}()
	switch {
	case len(reply) < 2 || len(reply[0]) != 0:
		return conformance.Differs("reply %x", reply)
	case slices.Contains(ownRequests, string(frames[1])):
		t.Logf("%s: %q is a request of hitline's own, answered %x", c.ID, frames[1], reply[1:])
	case c.ThreadDied != "" && hex.EncodeToString(reply[1]) != "00":
		return conformance.Differs("reply %x to what ends the reference's thread", reply[1])
	case c.ThreadDied != "":
		return conformance.Verdict{} // what is answered instead is our decision
	case hex.EncodeToString(reply[1]) != *c.Reply:
		return conformance.Differs("reply %x, want %s", reply[1], *c.Reply)
	}
	return conformance.Verdict{}
}

func (c *wireClientCase) judge(t *testing.T) conformance.Verdict {
	if c.TokenLen < 0 || c.TokenLen >= 1<<32 {
		if c.Frames != nil {
			return conformance.Differs("something is to be sent")
		}
		return conformance.Verdict{} // Lookup takes 32 bits: such a call does not compile
	}
	if c.HashBytes == "" {
		c.blob = conformance.Blob(c.ID, c.NumHashes, c.HashLen, nil)
	} else {
		b, err := hex.DecodeString(c.HashBytes)
		require.NoError(t, err)
		c.blob = slices.Repeat(b, c.HashLen)
	}
	if c.OneShort {
		c.blob = c.blob[:len(c.blob)-1]
	}
	got := c.call(t)
	if !slices.Equal(c.sentFrames, c.Frames) {
		return conformance.Differs("sent %v, want %v", c.sentFrames, c.Frames)
	}
	if got != string(c.Result) {
		return conformance.Differs("result %s, want %s", got, c.Result)
	}
	return conformance.Verdict{}
}

// call makes the client's call against a peer that gives the scripted reply.
func (c *wireClientCase) call(t *testing.T) (result string) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	require.NoError(t, here.SetDeadline(time.Now().Add(patience)))
	client := newClient(there, WithTimeout(patience))
	served := make(chan []string, 1)
	go func() { served <- c.serve(here) }()
	if c.Call == "reset" {
		result = strconv.FormatBool(client.Reset(context.Background()) == nil)
	} else {
		hit, _ := client.lookup(context.Background(), uint32(c.TokenLen), c.blob, c.HashLen)
		result = fmt.Sprint(hit)
	}
	here.Close()
	c.sentFrames = <-served
	return result
}

// serve reads one request and writes the reply.
func (c *wireClientCase) serve(conn net.Conn) (sent []string) {
	var in []byte
	for buf := make([]byte, 4096); ; {
		n, err := conn.Read(buf)
		if err != nil {
			return nil
		}
		in = append(in, buf[:n]...)
		if frames, used, err := netproto.ParseMessage(in, netproto.Limits{}, nil); err == nil && used == len(in) {
			for _, f := range frames {
				sent = append(sent, hex.EncodeToString(f))
			}
			break
		}
	}
	reply, _ := hex.DecodeString(*c.Reply)
	_, _ = conn.Write(netproto.AppendFrame(nil, reply, false))
	return sent
}
