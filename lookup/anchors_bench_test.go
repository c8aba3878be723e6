package lookup

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

// BenchmarkAnchors asks a service in process for prompts of which all blocks are
// there, or all up to a block in the middle, by all hashes and by anchors. An
// operation is a whole lookup with what its client does, up to three exchanges.
func BenchmarkAnchors(b *testing.B) {
	for _, n := range []int{8192, 131072} {
		hashes := chain("a", n, 32)
		for name, stored := range map[string]int{"all": n, "cut": n * 5 / 9} {
			service, err := NewService(blocks16)
			require.NoError(b, err)
			storePrefix(b, service, hashes, stored)
			tokens, want := uint32(16*n), uint32(16*stored)
			b.Run(fmt.Sprintf("hashes=%d/%s/full", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if hit, err := service.Lookup(uint64(tokens), netproto.NewHashes(hashes, 32)); hit != want || err != nil {
						b.Fatal(hit, err)
					}
				}
			})
			b.Run(fmt.Sprintf("hashes=%d/%s/anchors", n, name), func(b *testing.B) {
				b.ReportAllocs()
				call := &anchorsCall{hashes: hashes, hashLen: 32, stride: 1}
				exchanges, bytes := 0, 0
				for b.Loop() {
					hit, asked, sent := anchoredHit(b, service, call, tokens)
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
func anchoredHit(b *testing.B, s *Service, call *anchorsCall, tokens uint32) (hit uint32, exchanges, sent int) {
	call.begin(uint32(s.anchorUnit))
	for exchanges = 1; exchanges <= 2; exchanges++ {
		sent += len(call.blob) + len(call.Numbers) + len(call.Digests)
		a := answerAnchors(b, s, call, tokens)
		if a.determined {
			return a.hit, exchanges, sent
		}
		require.NoError(b, call.narrow(anchorsMore{known: uint32(a.known), said: uint32(a.said), end: uint32(a.end)}))
	}
	hit, err := s.Lookup(uint64(tokens), netproto.NewHashes(call.hashes, call.hashLen))
	require.NoError(b, err)
	return hit, exchanges, sent + len(call.hashes)
}

// answerAnchors answers one request.
func answerAnchors(b *testing.B, s *Service, call *anchorsCall, tokens uint32) anchorsAnswer {
	q := s.queries.Get().(*query)
	defer q.release()
	r := netproto.Request{NumTokens: uint64(tokens), HashLen: call.hashLen, NumHashes: len(call.blob) / call.hashLen, Anchors: call.Anchors}
	if err := q.beginAnchors(&r); err != nil {
		b.Fatal(err)
	}
	q.addAnchors(call.blob)
	a, err := q.finishAnchors()
	if err != nil {
		b.Fatal(err)
	}
	return a
}
