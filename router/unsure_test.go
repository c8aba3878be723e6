package router

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/router/fleet"
)

// An answer names the engines of which not all is known, and has what a stale one had last if that is asked for.
func TestUnsure(t *testing.T) {
	s := newService(t, Config{Models: []Model{{ModelKey: llama, Hash: &Hashing{}, Fleet: fleet.Config{BlockSize: 16}}}})
	whole, late := eventstest.New(t), eventstest.New(t)
	whole.Publish(false, stored(1, 2, 3))
	late.PublishPayload(false, nil) // a batch that the replay socket has no more
	late.Publish(false, stored(1))
	require.NoError(t, s.Add(engineSource(late, "late", 1)))
	require.NoError(t, s.Add(engineSource(whole, "whole", 0)))
	awaitNext(t, s, "whole/0", 1)
	awaitNext(t, s, "late/1", 2)

	var a Answer
	unsureOf := func(q Query) map[string][]string {
		require.NoError(t, s.Query(t.Context(), &q, &a))
		reasons := map[string][]string{}
		for _, u := range a.Unsure {
			reasons[u.Engine] = u.Reasons(nil)
		}
		return reasons
	}
	byHash := Query{Hashes: hashesOf(1, 2, 3)}
	require.Equal(t, map[string][]string{"late": {"incomplete"}}, unsureOf(byHash))
	require.Empty(t, unsureOf(Query{Hashes: byHash.Hashes, Engine: "whole"}))
	require.Equal(t, map[string][]string{"late": {"incomplete", "unchecked"}, "whole": {"unchecked"}}, unsureOf(Query{Tokens: make([]int64, 16)}))

	whole.Close()
	eventually(t, func() bool { return status(t, s, "whole/0").Stale })
	require.Equal(t, map[string][]string{"late": {"incomplete"}, "whole": {"stale"}}, unsureOf(byHash))
	require.Equal(t, "late/1=16(GPU=16) ", textOf(&a))
	byHash.LastKnown = true
	require.Equal(t, map[string][]string{"late": {"incomplete"}, "whole": {"stale"}}, unsureOf(byHash))
	require.Equal(t, "whole/0=48(GPU=48) late/1=16(GPU=16) ", textOf(&a))
}

// An engine that is quiet while its blocks are dropped, as others need the memory, is incomplete in answers, too.
func TestUnsureOfDropped(t *testing.T) {
	s := newService(t, Config{Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16, MaxBytes: 1 << 20}}}})
	quiet := eventstest.New(t)
	many := make([]uint64, 30_000)
	for i := range many {
		many[i] = uint64(i) + 1
	}
	quiet.Publish(false, stored(many...))
	require.NoError(t, s.Add(engineSource(quiet, "quiet", 0)))
	awaitNext(t, s, "quiet/0", 1)
	require.NoError(t, s.Add(source(t, llama, "busy", 0, 16)))
	var a Answer
	query := Query{Hashes: hashesOf(1), Engine: "quiet"}
	require.NoError(t, s.Query(t.Context(), &query, &a))
	require.Empty(t, a.Unsure)
	hold(t, s, llama, fleet.ID{Engine: "busy"}, gpu, chain("busy", 10_000))
	require.NoError(t, s.Query(t.Context(), &query, &a))
	require.Equal(t, []Unsure{{ID: fleet.ID{Engine: "quiet"}, Incomplete: true}}, a.Unsure)
}

// probedPool is a store that does something while it is asked.
type probedPool struct{ probe func() }

func (p probedPool) Pool() coordinator.Pool { return blocks16(8) }

func (p probedPool) PeekPrompt(context.Context, int64, coordinator.Hashes) (coordinator.Hit, error) {
	p.probe()
	return coordinator.Hit{}, nil
}

// A source that is followed, or is not, from the middle of a query on is unsure in its answer: what it has may be missing there.
func TestUnsureDuringQuery(t *testing.T) {
	p := eventstest.New(t)
	p.Publish(true, stored(1))
	p.Mute(true)
	var s *Service
	awaitStale := func(stale bool) { eventually(t, func() bool { return status(t, s, "e/0").Stale == stale }) }
	changes := func() { p.Mute(false); awaitStale(false) }
	s = newService(t, Config{Models: []Model{{ModelKey: llama, Pool: probedPool{func() { changes() }}}}})
	src := engineSource(p, "e", 0)
	src.Timeout = Duration(100 * time.Millisecond)
	require.NoError(t, s.Add(src))
	var a Answer
	query := Query{Hashes: hashesOf(1), Loadable: true}
	require.NoError(t, s.Query(t.Context(), &query, &a))
	require.Empty(t, a.Holders)
	require.Equal(t, []Unsure{{ID: fleet.ID{Engine: "e"}, Stale: true, Incomplete: true}}, a.Unsure)

	changes = func() { p.Close(); awaitStale(true) }
	require.NoError(t, s.Query(t.Context(), &query, &a))
	require.Equal(t, "e/0=16(GPU=16) loadable=0", textOf(&a))
	require.Equal(t, []Unsure{{ID: fleet.ID{Engine: "e"}, Stale: true}}, a.Unsure)
}
