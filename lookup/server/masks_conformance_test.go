package server

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// maskCase is a request for masks of a pool.
type maskCase struct {
	coordinator.Pool
	ID              string `json:"id"`
	Op              string `json:"op"`
	AlignedTokenLen int64  `json:"aligned_token_len"`
	StartToken      int64  `json:"start_token"`
	NumPromptTokens *int64 `json:"num_prompt_tokens"`
	NumHashes       int    `json:"num_hashes"`
	TokenLen        int64  `json:"token_len"`
	PartialHits     bool   `json:"enable_partial_hash_hits"`
	Expect          struct {
		Masks []conformance.Runs `json:"masks"`
		Error string             `json:"error"`
		Stage string             `json:"stage"`
	} `json:"expect"`
}

// TestConformanceMasksOverTheWire describes the pool of each case to a running server and asks it
// for the masks, over the memory index and over a backend.
func TestConformanceMasksOverTheWire(t *testing.T) {
	memory := startPools(t, nil, Config{AcceptPool: memoryService})
	shared := lookup.NewSharedBackend(&lookuptest.KeyStore{}, patient, nil)
	remote := startPools(t, nil, Config{Backend: shared, AcceptPool: func(pool coordinator.Pool) (*lookup.Service, error) {
		return lookup.NewService(lookup.ServiceConfig{Pool: pool, Shared: shared})
	}})
	for _, release := range conformance.Releases {
		name := "releases/" + release + "/masks.json"
		var file struct{ Cases []*maskCase }
		conformance.Load(t, name, &file)
		overMemory := conformance.NewReport(t, name+" over the wire")
		overBackend := conformance.NewReport(t, name+" over the wire and a backend")
		for _, c := range file.Cases {
			c.VLLM = release
			if c.PartialHits {
				c.CacheHitAlignmentTokens = c.HashBlockSize
			}
			overMemory.Add(c.ID, c.judge(t, memory))
			overBackend.Add(c.ID, c.judge(t, remote))
		}
		overMemory.Done()
		overBackend.Done()
	}
}

// judge asks a server and compares its answer.
func (c *maskCase) judge(t *testing.T, server *Server) conformance.Verdict {
	conn, err := client.Dial(t.Context(), server.Addrs()[0], client.WithPool("", c.Pool), client.WithTimeout(lookuptest.Patience))
	var masks []api.GroupMask
	stage := "construct"
	if err == nil {
		defer conn.Close()
		stage = c.Op
		masks, err = c.ask(t, conn)
	}
	switch want := &c.Expect; {
	case want.Error != "":
		if stage != want.Stage || !errors.Is(err, client.ErrRefused) {
			return conformance.Differs("%v at %q, want a refusal at %q", err, stage, want.Stage)
		}
		return conformance.Verdict{}
	case err != nil:
		return conformance.Differs("%v at %q", err, stage)
	case len(masks) != len(want.Masks):
		return conformance.Differs("%d masks, want %d", len(masks), len(want.Masks))
	}
	rules, err := coordinator.New(c.Pool)
	require.NoError(t, err)
	for i := range masks {
		if v := c.judgeMask(i, &masks[i], rules.StoreGroup(i)); v != (conformance.Verdict{}) {
			return v
		}
	}
	return conformance.Verdict{}
}

// ask makes the request.
func (c *maskCase) ask(t *testing.T, conn *client.Client) ([]api.GroupMask, error) {
	switch c.Op {
	case "load_mask":
		return conn.LoadMask(t.Context(), c.TokenLen, c.NumHashes)
	case "store_mask":
		prompt := int64(coordinator.NoPrompt)
		if c.NumPromptTokens != nil {
			prompt = *c.NumPromptTokens
		}
		return conn.StoreMask(t.Context(), c.AlignedTokenLen, c.StartToken, prompt)
	case "lookup_mask":
		return conn.LookupMask(t.Context(), c.AlignedTokenLen)
	}
	return nil, errors.New("unknown operation " + c.Op)
}

// judgeMask judges the mask of a group of the pool.
func (c *maskCase) judgeMask(i int, m *api.GroupMask, group int) conformance.Verdict {
	block := int64(c.Groups[i].BlockSize)
	want := c.Expect.Masks[i]
	first, end := int64(0), int64(sum(want))
	if c.Op != "load_mask" {
		end = c.AlignedTokenLen / block
		first = min(end, (c.StartToken+block-1)/block)
	}
	switch got := runsOf(m); {
	case m.All != (want == nil):
		return conformance.Differs("mask %d: sentinel %v, want %v", i, m.All, want)
	case !m.All && !slices.Equal(got, want):
		return conformance.Differs("mask %d is %v, want %v", i, got, want)
	case m.First != first || m.End != end:
		return conformance.Differs("mask %d has chunks %d to %d, want %d to %d", i, m.First, m.End, first, end)
	case m.Group != group:
		return conformance.Differs("mask %d is of group %d, want %d", i, m.Group, group)
	}
	return conformance.Verdict{}
}

// runsOf returns the entries of a mask as they are recorded.
func runsOf(m *api.GroupMask) conformance.Runs {
	runs := conformance.Runs{}
	for chunk := m.First; chunk < m.End; chunk++ {
		runs = runs.Append(m.At(chunk), 1)
	}
	return runs
}

func sum(runs conformance.Runs) (n int) {
	for _, run := range runs {
		n += run
	}
	return n
}
