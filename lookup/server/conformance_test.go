package server

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// wireServerCase is one request to an empty server.
type wireServerCase struct {
	ID              string   `json:"id"`
	Frames          []string `json:"frames"`
	HashLen         int      `json:"hash_len"`
	Present         present  `json:"present"`
	Store           string   `json:"store"`
	Reply           *string  `json:"reply"`
	ThreadDied      string   `json:"server_thread_died"`
	RemoveAllRaises bool     `json:"remove_all_raises"`
	RemoveAllCalls  *int64   `json:"remove_all_calls"`

	// Of releases only:
	Config string `json:"config"`
	Expect struct {
		Reply          *string `json:"reply"`
		ThreadDied     string  `json:"server_thread_died"`
		RemoveAllCalls *int64  `json:"remove_all_calls"`
	} `json:"expect"`
}

// present has the raw hashes that are stored, by store group. The older files have those of
// the only group.
type present [][]conformance.Range

// UnmarshalJSON decodes either form.
func (p *present) UnmarshalJSON(text []byte) error {
	var only []conformance.Range
	if err := json.Unmarshal(text, &only); err == nil {
		*p = present{only}
		return nil
	}
	return json.Unmarshal(text, (*[][]conformance.Range)(p))
}

// TestConformanceWireReleases judges requests to a server by release.
func TestConformanceWireReleases(t *testing.T) {
	for _, folder := range conformance.Releases {
		var file struct {
			ServerCases []wireServerCase           `json:"server_cases"`
			Configs     map[string]json.RawMessage `json:"server_configs"`
		}
		conformance.LoadLists(t, "releases/"+folder+"/wire.json", &file)
		report := conformance.NewReport(t, "releases/"+folder+"/wire.json, requests to the server")
		for i := range file.ServerCases {
			c := &file.ServerCases[i]
			c.Reply, c.ThreadDied, c.RemoveAllCalls = c.Expect.Reply, c.Expect.ThreadDied, c.Expect.RemoveAllCalls
			var pool coordinator.Pool
			require.NoError(t, json.Unmarshal(file.Configs[c.Config], &pool))
			pool.VLLM = conformance.Newest((&coordinator.Pool{VLLM: folder}).FittingReleases())
			if c.Config == "fine" { // from 0.32.0 on it is configured
				fine := pool
				fine.CacheHitAlignmentTokens = pool.HashBlockSize
				if _, err := coordinator.New(fine); err == nil {
					pool = fine
				}
			}
			report.Add(c.ID, c.judgeRelease(t, pool))
		}
		report.Done()
	}
}

// judgeRelease judges a case over a backend and, if the memory index can do what the case's
// store does, over the index.
func (c *wireServerCase) judgeRelease(t *testing.T, pool coordinator.Pool) conformance.Verdict {
	store := c.backend()
	v := c.judge(t, startServer(t, lookup.ServiceConfig{Pool: pool, Backend: store, Remote: patient}, Limits{}))
	if want := c.RemoveAllCalls; want != nil && store.Resets.Load() != *want {
		return conformance.Differs("%d calls of reset, want %d", store.Resets.Load(), *want)
	}
	if v != (conformance.Verdict{}) || c.needsBackend() {
		return v
	}
	return c.judge(t, startServer(t, lookup.ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: 4 << 20}}, Limits{}))
}

func TestConformanceWire(t *testing.T) {
	var file struct {
		ServerCases []wireServerCase `json:"server_cases"`
		Config      json.RawMessage  `json:"server_config"`
	}
	conformance.Load(t, "wire.json", &file)
	report := conformance.NewReport(t, "wire.json, requests to the server")
	var pool coordinator.Pool
	require.NoError(t, json.Unmarshal(file.Config, &pool))
	server := startServer(t, lookup.ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: 4 << 20}}, Limits{})
	remote := conformance.NewReport(t, "wire.json, requests to the server over a backend")
	for i := range file.ServerCases {
		c := &file.ServerCases[i]
		store := c.backend()
		overBackend := c.judge(t, startServer(t, lookup.ServiceConfig{Pool: pool, Backend: store, Remote: patient}, Limits{}))
		if want := c.RemoveAllCalls; want != nil && store.Resets.Load() != *want {
			overBackend = conformance.Differs("%d calls of reset, want %d", store.Resets.Load(), *want)
		}
		remote.Add(c.ID, overBackend)
		if c.needsBackend() {
			report.Add(c.ID, overBackend)
			continue
		}
		require.NoError(t, server.pools.own.service.Reset(t.Context()))
		report.Add(c.ID, c.judge(t, server))
	}
	report.Done()
	remote.Done()
}

// needsBackend reports whether the case's store does what the memory index cannot.
func (c *wireServerCase) needsBackend() bool {
	return c.Store != "normal" && c.Store != "" || c.RemoveAllRaises
}

// backend returns the case's store, empty: judge fills it.
func (c *wireServerCase) backend() *lookuptest.KeyStore {
	k := &lookuptest.KeyStore{}
	k.Before = func(_ context.Context, op string, _ []string) error {
		if op == "exists" && c.Store == "raises" || op == "reset" && c.RemoveAllRaises {
			return lookuptest.ErrStore
		}
		return nil
	}
	k.Answer = func(answers []int) []int {
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

// failedReply is the reply to a lookup that fails.
func failedReply(server *Server) string {
	if server.pools.own.service.Coordinator().HasTailBoundaries() {
		return "00000000"
	}
	return "00"
}

func (c *wireServerCase) judge(t *testing.T, server *Server) conformance.Verdict {
	for g, ranges := range c.Present {
		for _, r := range ranges {
			for i := r[0]; i < r[1]; i++ {
				hash := coordinator.NewHashes(conformance.Hash(c.ID, i, c.HashLen), c.HashLen)
				require.NoError(t, server.pools.own.service.Store(t.Context(), coordinator.GroupRank{Group: uint16(g)}, hash))
			}
		}
	}
	frames := [][]byte{{}} // the delimiter of a REQ socket
	for _, f := range c.Frames {
		b, err := hex.DecodeString(f)
		require.NoError(t, err)
		frames = append(frames, b)
	}
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	reply := p.Ask(t, frames...)
	defer func() {
		require.Equal(t, [][]byte{{}, {netproto.StatusDone}, {}}, p.Ask(t, nil, []byte("ping"), nil), "%s: the server lives", c.ID)
	}()
	switch {
	case len(reply) < 2 || len(reply[0]) != 0:
		return conformance.Differs("reply %x", reply)
	case slices.Contains(ownRequests, string(frames[1])):
		t.Logf("%s: %q is a request of hitline's own, answered %x", c.ID, frames[1], reply[1:])
	case c.ThreadDied != "" && hex.EncodeToString(reply[1]) != failedReply(server):
		return conformance.Differs("reply %x to what ends the reference's thread", reply[1])
	case c.ThreadDied != "":
		return conformance.Verdict{} // what is answered instead is our decision
	case hex.EncodeToString(reply[1]) != *c.Reply:
		return conformance.Differs("reply %x, want %s", reply[1], *c.Reply)
	}
	return conformance.Verdict{}
}
