package lookup

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/internal/anchorplan"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// BenchmarkAnchors asks a service in process for prompts of which all blocks are
// there, or all up to a block in the middle, by all hashes and by anchors. An
// operation is a whole lookup with what its client does, up to three exchanges.
func BenchmarkAnchors(b *testing.B) {
	for _, n := range []int{8192, 131072} {
		hashes := lookuptest.Chain("a", n, 32)
		for name, stored := range map[string]int{"all": n, "cut": n * 5 / 9} {
			service, err := NewService(blocks16)
			require.NoError(b, err)
			lookuptest.StorePrefix(b, service, hashes, stored)
			tokens, want := uint32(16*n), uint32(16*stored)
			b.Run(fmt.Sprintf("hashes=%d/%s/full", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if hit, err := service.Lookup(b.Context(), int64(tokens), netproto.NewHashes(hashes, 32)); uint32(hit.Tokens) != want || err != nil {
						b.Fatal(hit.Tokens, err)
					}
				}
			})
			b.Run(fmt.Sprintf("hashes=%d/%s/anchors", n, name), func(b *testing.B) {
				b.ReportAllocs()
				var plan anchorplan.Plan
				exchanges, bytes := 0, 0
				for b.Loop() {
					hit, asked, sent := anchoredHit(b, service, &plan, hashes, tokens)
					if hit != want {
						b.Fatal(hit)
					}
					exchanges, bytes = exchanges+asked, bytes+sent
				}
				b.ReportMetric(float64(exchanges)/float64(b.N), "exchanges/op")
				b.ReportMetric(float64(bytes)/float64(b.N), "sent-B/op")
			})
		}
	}
}

// anchoredHit looks up by anchors and returns how many exchanges it took and how
// many bytes of hashes, numbers and digests they had.
func anchoredHit(b *testing.B, s *Service, plan *anchorplan.Plan, hashes []byte, tokens uint32) (hit uint32, exchanges, sent int) {
	plan.Begin(hashes, 32, s.anchorStride, uint32(s.anchorUnit))
	for exchanges = 1; exchanges <= 2; exchanges++ {
		sent += len(plan.Blob) + len(plan.Numbers) + len(plan.Digests)
		a := answerAnchors(b, s, plan, tokens)
		if a.Determined {
			return uint32(a.Hit.Tokens), exchanges, sent
		}
		require.NoError(b, plan.Narrow(hashes, anchorplan.More{Proven: a.Proven, Claimed: a.Claimed, End: a.End}))
	}
	full, err := s.Lookup(b.Context(), int64(tokens), netproto.NewHashes(hashes, 32))
	require.NoError(b, err)
	return uint32(full.Tokens), exchanges, sent + len(hashes)
}

// answerAnchors answers one request.
func answerAnchors(b *testing.B, s *Service, plan *anchorplan.Plan, tokens uint32) AnchorsAnswer {
	q := s.NewQuery()
	defer q.Release()
	r := netproto.Request{NumTokens: uint64(tokens), HashLen: 32, NumHashes: len(plan.Blob) / 32, Anchors: plan.Anchors}
	if _, err := q.BeginAnchors(&r); err != nil {
		b.Fatal(err)
	}
	q.AddAnchors(plan.Blob)
	a, err := q.FinishAnchors()
	if err != nil {
		b.Fatal(err)
	}
	return a
}
