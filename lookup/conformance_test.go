package lookup

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

func TestConformanceWorkerLookup(t *testing.T) {
	skipUnderRace(t)
	conformWorker(t, "worker_lookup.json", "")
}

func TestConformanceWorkerLookup20260817(t *testing.T) {
	skipUnderRace(t)
	conformWorker(t, "later/worker_lookup.json", "0.28.0")
}

// TestConformanceReleases judges the recorded lookups of vLLM releases.
func TestConformanceReleases(t *testing.T) {
	skipUnderRace(t)
	for _, folder := range conformance.Releases {
		conformWorker(t, "releases/"+folder+"/worker_lookup.json", conformance.Newest((&coordinator.Pool{VLLM: folder}).FittingReleases()))
	}
}

// encodeCase is a result and its reply, or the error of a number that does not fit.
type encodeCase struct {
	ID         string     `json:"id"`
	HitLength  int64      `json:"hit_length"`
	Boundaries [][2]int64 `json:"tail_key_boundaries"`
	Expect     struct {
		Reply string `json:"reply"`
		Error string `json:"error"`
	} `json:"expect"`
}

// TestConformanceEncode judges the replies to lookups of releases with tail boundaries.
func TestConformanceEncode(t *testing.T) {
	for _, release := range conformance.Releases {
		var file struct {
			Cases []encodeCase `json:"encode_cases"`
		}
		name := "releases/" + release + "/wire.json"
		if conformance.LoadLists(t, name, &file); file.Cases == nil {
			continue // before 0.29.0
		}
		s, err := NewService(ServiceConfig{Pool: coordinator.Pool{VLLM: release}})
		require.NoError(t, err)
		report := conformance.NewReport(t, name+", encoded replies")
		for i := range file.Cases {
			report.Add(file.Cases[i].ID, file.Cases[i].judge(s))
		}
		report.Done()
	}
}

func (c *encodeCase) judge(s *Service) conformance.Verdict {
	answer := coordinator.Hit{Tokens: c.HitLength}
	for _, b := range c.Boundaries {
		if int64(int(b[0])) != b[0] {
			return conformance.Skipped("a group does not fit an int of this platform")
		}
		answer.TailBoundaries = append(answer.TailBoundaries, coordinator.TailBoundary{Group: int(b[0]), Tokens: b[1]})
	}
	hit, err := s.newHit(answer)
	if errors.Is(err, ErrHitRange) != (c.Expect.Error == "OverflowError") {
		return conformance.Differs("error %v, want %q", err, c.Expect.Error)
	}
	if err != nil {
		return conformance.Verdict{}
	}
	reply := netproto.AppendTailHit(nil, nil, uint32(hit.Tokens), len(hit.TailBoundaries))
	for _, b := range hit.TailBoundaries {
		reply = netproto.AppendTailBoundary(reply, uint32(b.Group), uint32(b.Tokens))
	}
	frames, _, err := netproto.ParseMessage(reply, netproto.Limits{}, nil)
	if err != nil || hex.EncodeToString(frames[0]) != c.Expect.Reply {
		return conformance.Differs("reply %x (%v), want %s", reply, err, c.Expect.Reply)
	}
	return conformance.Verdict{}
}

// conformWorker judges each case: asked of an external store by keys, by a service whose backend is this
// store, and, if the store answers properly, by one whose index holds the same.
func conformWorker(t *testing.T, file, vllm string) {
	conformance.Run(t, file, func(c *conformance.WorkerCase) conformance.Verdict {
		pool, err := poolOf(c, vllm)
		if err != nil {
			return conformance.Differs("pool: %v", err)
		}
		if c.Expect.PrefixesSHA256 != "" || c.Expect.Stage != "" || c.CapacityOnly { // of a release
			coord, err := coordinator.New(pool)
			if err != nil || c.Expect.Stage != "" {
				return judgeConstruct(c, err)
			}
			if err := c.SetPrefixes(prefixesOf(coord)); err != nil {
				return conformance.Differs("%v", err)
			}
		}
		if v := judgeExternal(c, pool); v != (conformance.Verdict{}) {
			return v
		}
		if v := judgeBackend(c, pool); v != (conformance.Verdict{}) {
			return v
		}
		if c.Store == "normal" {
			return judgeService(c, pool)
		}
		return conformance.Verdict{}
	})
}

func poolOf(c *conformance.WorkerCase, vllm string) (pool coordinator.Pool, err error) {
	text, err := c.PoolJSON()
	if err == nil {
		err = json.Unmarshal(text, &pool)
	}
	pool.VLLM = vllm
	return pool, err
}

// judgeConstruct judges the error of a pool that the reference refuses.
func judgeConstruct(c *conformance.WorkerCase, err error) conformance.Verdict {
	if c.Expect.Stage != "construct" || classOf(err) != c.Expect.Error {
		return conformance.Differs("the pool: %v, want %q at %q", err, c.Expect.Error, c.Expect.Stage)
	}
	return conformance.Verdict{}
}

// prefixesOf returns the key prefixes of each group without the last @.
func prefixesOf(c *coordinator.Coordinator) [][]string {
	all := make([][]string, c.NumGroups())
	for g := range all {
		for _, r := range c.Ranks(g) {
			all[g] = append(all[g], strings.TrimSuffix(c.KeyPrefix(g, r), "@"))
		}
	}
	return all
}

// pairsOf returns tail boundaries as they are recorded.
func pairsOf(tail []coordinator.TailBoundary) (pairs [][2]int64) {
	for _, b := range tail {
		pairs = append(pairs, [2]int64{int64(b.Group), b.Tokens})
	}
	return pairs
}

// judgeExternal asks for all keys in one call, as the reference does.
func judgeExternal(c *conformance.WorkerCase, pool coordinator.Pool) conformance.Verdict {
	coord, err := coordinator.New(pool)
	if err != nil {
		return conformance.Differs("coordinator: %v", err)
	}
	store, err := c.NewStore()
	if err != nil {
		return conformance.Differs("store: %v", err)
	}
	hit, _, _, err := coord.LookupExplain(c.TokenLen, coordinator.NewHashes(c.Blob(), c.HashLen), coordinator.ExistsFunc(store.Exists))
	if errors.Is(err, conformance.ErrStore) { // to a lookup it holds nothing
		err = nil
	}
	return c.Judge(store, hit.Tokens, pairsOf(hit.TailBoundaries), err, classOf(err))
}

// scriptedStore is a backend over the store of a case.
type scriptedStore struct {
	lookuptest.KeyStore
	script *conformance.Store
}

func (s *scriptedStore) Exists(_ context.Context, keys backend.Keys, _ bool) ([]int, error) {
	return s.script.Exists(keys.Strings())
}

// judgeBackend asks a service over the store in rounds, with all hashes and with only those that a request
// over the wire keeps. Only the answer is compared: the recorded keys are those of one call.
func judgeBackend(c *conformance.WorkerCase, pool coordinator.Pool) conformance.Verdict {
	hashes := coordinator.NewHashes(c.Blob(), c.HashLen)
	for _, kept := range []bool{false, true} {
		store, err := c.NewStore()
		if err != nil {
			return conformance.Differs("store: %v", err)
		}
		s, err := NewService(ServiceConfig{Pool: pool, Backend: &scriptedStore{script: store}, Remote: patient})
		if err != nil {
			return conformance.Differs("service over a backend: %v", err)
		}
		if kept {
			tokens := uint64(max(0, c.TokenLen))
			_, n, err := s.Needed(tokens, s.unaligned(tokens), 0, hashes.Len())
			if err != nil {
				n = hashes.Len()
			}
			hashes = coordinator.NewHashes(hashes.Bytes()[:n*c.HashLen], c.HashLen)
		}
		hit, err := s.Lookup(context.Background(), c.TokenLen, hashes)
		way := fmt.Sprintf("service over a backend (cut: %v)", kept)
		if v := judgeAnswer(c, way, hit, err); v != (conformance.Verdict{}) {
			return v
		}
		if failed := s.Stat().BackendErrors; failed != int64(c.Expect.StoreCalls) && c.Store == "raises" {
			return conformance.Differs("%d backend errors counted", failed)
		}
	}
	return conformance.Verdict{}
}

// judgeAnswer compares an answer that was found in one way with the recording.
func judgeAnswer(c *conformance.WorkerCase, way string, hit api.Hit, err error) conformance.Verdict {
	if class := classOf(err); class != c.Expect.Error {
		return conformance.Differs("%s: error %q (%v), want %q", way, class, err, c.Expect.Error)
	}
	if err == nil && hit.Tokens != c.Expect.HitLength {
		return conformance.Differs("%s: hit %d, want %d", way, hit.Tokens, c.Expect.HitLength)
	}
	if tail := pairsOf(hit.TailBoundaries); err == nil && !slices.Equal(tail, c.Expect.TailKeyBoundaries) {
		return conformance.Differs("%s: tail boundaries %v, want %v", way, tail, c.Expect.TailKeyBoundaries)
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
		switch err := s.Store(context.Background(), place, coordinator.NewHashes(hash, len(hash))); {
		case errors.Is(err, ErrGroupRank) && !isAsked(s, place): // noise on a rank that holds no block of its own
		case err != nil:
			return conformance.Differs("store %q: %v", key, err)
		}
	}
	hashes := coordinator.NewHashes(c.Blob(), c.HashLen)
	for _, piece := range []int{hashes.Len(), 1, 3, 64} {
		hit, err := lookupPieces(s, uint64(c.TokenLen), hashes, max(piece, 1))
		if v := judgeAnswer(c, fmt.Sprintf("service, hashes in pieces of %d", piece), hit, err); v != (conformance.Verdict{}) {
			return v
		}
	}
	return conformance.Verdict{}
}

// isAsked reports whether lookups check the keys of a group on a rank.
func isAsked(s *Service, at coordinator.GroupRank) bool {
	return slices.ContainsFunc(s.coord.Ranks(int(at.Group)), func(r coordinator.Rank) bool {
		return r.TP == int(at.TPRank) && r.PP == int(at.PPRank) && r.PCP == int(at.PCPRank)
	})
}

// lookupPieces is Service.Lookup with the hashes arriving in pieces.
func lookupPieces(s *Service, numTokens uint64, hashes coordinator.Hashes, piece int) (api.Hit, error) {
	if piece == hashes.Len() {
		return s.Lookup(context.Background(), int64(numTokens), hashes)
	}
	if err := s.checkPrompt(int64(numTokens), hashes); err != nil {
		return api.Hit{}, err
	}
	q := s.memory.NewQuery()
	defer q.Release()
	unaligned := numTokens%uint64(s.coord.Alignment()) != 0
	wanted, err := q.Begin(numTokens, unaligned, hashes.Start(), hashes.HashLen(), hashes.Len())
	if err != nil {
		return api.Hit{}, err
	}
	for rest := hashes.Bytes(); wanted && len(rest) > 0; {
		n := min(len(rest), piece*hashes.HashLen())
		if !q.Add(rest[:n:n]) {
			break
		}
		rest = rest[n:]
	}
	hit, err := q.Finish()
	hit.TailBoundaries = slices.Clone(hit.TailBoundaries)
	return hit, err
}

// parseKey takes a key apart:
// ...@tp_rank:T@pcpX@dcpY@pp_rank:P@group:G@hash.
func parseKey(key string) (at coordinator.GroupRank, hash []byte, err error) {
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
