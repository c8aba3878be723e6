package router

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/internal/partstest"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// oneBlock returns the snapshot of a fleet whose engine a holds a block, and the checkpoint of its source.
func oneBlock(t testing.TB) (*fleet.Snapshot, *events.Checkpoint) {
	f, err := fleet.New(fleet.Config{BlockSize: 16})
	require.NoError(t, err)
	h, err := f.Add(fleet.ID{Engine: "a"})
	require.NoError(t, err)
	require.NoError(t, h.Store(&events.Blocks{Tier: gpu, Hashes: hashesOf(1), BlockSize: 16}, make([]bool, 1)))
	follower, err := events.Follow(events.Config{Endpoint: "tcp://127.0.0.1:1"}, h)
	require.NoError(t, err)
	defer follower.Close()
	checkpoint, err := follower.Pause(t.Context())
	require.NoError(t, err)
	follower.Unpause()
	return f.Snapshot(), checkpoint
}

// dumpWith returns a dump of models that hold a block each, without sources, as a peer may send that is not ours.
func dumpWith(t testing.TB, infos ...modelInfo) []byte {
	d := &dump{}
	for _, info := range infos {
		snapshot, _ := oneBlock(t)
		d.models = append(d.models, dumpedModel{info, snapshot})
	}
	var b bytes.Buffer
	require.NoError(t, d.write(&b))
	return b.Bytes()
}

// Whatever is wrong with a dump, it is refused and nothing of it is loaded.
func TestLoadDumpRefuses(t *testing.T) {
	whole := dumpOf(t, newEngines(t).service())
	model := modelInfo{ModelKey: ModelKey{Name: "m"}, BlockSize: 16}
	snapshot, checkpoint := oneBlock(t)
	var longText bytes.Buffer
	endpoint := "tcp://" + strings.Repeat("x", 100_000) + ":1"
	require.NoError(t, (&dump{
		[]dumpedModel{{model, snapshot}},
		[]*dumpedSource{{sourceInfo{Source: Source{Name: "s", Endpoint: endpoint, Model: "m", Engine: "a"}}, checkpoint}},
	}).write(&longText))
	for want, refused := range map[string]io.Reader{
		"it ends too early":              bytes.NewReader(whole[:len(whole)-1]),
		context.DeadlineExceeded.Error(): io.MultiReader(bytes.NewReader(whole[:100]), iotest.ErrReader(context.DeadlineExceeded)),
		"is wrong, or there twice":       bytes.NewReader(dumpWith(t, model, model)),
		"has 100008 bytes; at most 512":  &longText,
		"at most 1024 and 65536":         bytes.NewReader(dumpWith(t, make([]modelInfo, maxDumpModels+1)...)),
	} {
		s := newService(t, Config{})
		err := s.LoadDump(refused)
		require.ErrorIs(t, err, ErrDump)
		require.ErrorContains(t, err, want)
		require.Empty(t, s.Models())
		require.NoError(t, s.LoadDump(bytes.NewReader(whole)))
		require.ErrorIs(t, s.LoadDump(bytes.NewReader(whole)), ErrNotEmpty, "its sources could not take the holders of the first")
	}
	require.ErrorIs(t, newEngines(t).service().LoadDump(bytes.NewReader(whole)), ErrNotEmpty)
}

// What does not suit the service is left out, with a line in the log. A model of the configuration stays.
func TestDumpOfOtherModels(t *testing.T) {
	model := func(blockSize int, firstBytes bool) []Model {
		return []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: blockSize, FirstBytes: firstBytes}}}
	}
	dump := dumpOf(t, newEngines(t).service())
	for what, test := range map[string]struct {
		cfg   Config
		holds int
	}{
		"another block size": {Config{Models: model(32, false)}, 0},
		"another short form": {Config{Models: model(16, true)}, 0},
		"too many models":    {Config{MaxModels: 1, Models: []Model{{ModelKey: ModelKey{Name: "qwen"}, Fleet: fleet.Config{BlockSize: 16}}}}, 0},
		"too many holders":   {Config{Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16, MaxHolders: 1}}}}, 0},
		"all the same":       {Config{Models: model(16, false)}, 2},
	} {
		var log bytes.Buffer
		test.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s := newService(t, test.cfg)
		require.NoError(t, s.LoadDump(bytes.NewReader(dump)), what)
		require.Len(t, s.unclaimed, 2, "a source without a holder begins anew, %s", what)
		require.Len(t, s.Models(), 1, what)
		require.Len(t, s.Models()[0].Holders, test.holds, what)
		require.Equal(t, test.holds == 0, bytes.Contains(log.Bytes(), []byte("a model of the dump is left out")), what)
		s.DropUnclaimed()
		require.Len(t, s.Models(), 1, what)
		require.Empty(t, s.Models()[0].Holders, what)
		require.Equal(t, 2, strings.Count(log.String(), "a source of the dump is not followed"), what)
	}
}

// A model without a tenant is that of the default tenant, in a dump as anywhere: it does not stand beside the
// one that is configured, nor remove it. A holder without a source is dropped at once.
func TestDumpOfModelWithoutTenant(t *testing.T) {
	s := newService(t, Config{Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}})
	require.NoError(t, s.LoadDump(bytes.NewReader(dumpWith(t, modelInfo{ModelKey: llama, BlockSize: 16}))))
	require.Len(t, s.Models(), 1)
	require.Empty(t, s.Models()[0].Holders)
	s.DropUnclaimed()
	require.NoError(t, s.Query(t.Context(), &Query{ModelKey: llama, Hashes: hashesOf(1)}, new(Answer)))
}

// A checkpoint for which there is no memory is not kept, and its source begins anew. More sources than there is memory for are
// refused.
func TestDumpOfLargeSources(t *testing.T) {
	s := newService(t, Config{})
	require.NoError(t, s.LoadDump(bytes.NewReader(dumpOf(t, newEngines(t).service()))))
	checkpoint := s.unclaimed[holderKey{llama.withDefaults(), fleet.ID{Engine: "a"}}].checkpoint
	require.True(t, checkpoint.HasLast)
	info := sourceInfo{Source: Source{Name: "s", Endpoint: "tcp://a:1", Model: "m", Tenant: DefaultTenant, Engine: "a"}}
	for free, want := range map[int64]string{info.bytes() - 1: "sources of over 134217728 bytes", info.bytes(): ""} {
		f, err := fleet.New(fleet.Config{BlockSize: 16})
		require.NoError(t, err)
		_, err = f.Add(info.ID())
		require.NoError(t, err)
		d := &loadedDump{
			fleets: map[ModelKey]*fleet.Fleet{info.ModelKey(): f}, sources: map[holderKey]*dumpedSource{},
			sourceBytes: maxDumpSourceBytes - free,
		}
		var b bytes.Buffer
		w := parts.NewWriter(&b, dumpMagic, dumpFormat)
		w.JSON(info)
		checkpoint.Write(w)
		require.NoError(t, w.End())
		r := parts.NewReader(&b, dumpMagic, dumpFormat)
		d.readSource(r)
		if want != "" {
			require.ErrorContains(t, r.Err(), want)
			continue
		}
		require.NoError(t, r.End())
		src := d.sources[holderKey{info.ModelKey(), info.ID()}]
		require.True(t, src.info.Stale)
		require.Equal(t, events.NewCheckpoint("s", false), src.checkpoint)
	}
}

// FuzzLoadDump loads dumps whose checksums are right and that say anything: they are refused or loaded, and what has no
// source is dropped again.
func FuzzLoadDump(f *testing.F) {
	snapshot, checkpoint := oneBlock(f)
	f.Add([]byte(`{"models":1,"sources":1}`), []byte(`{"model":"llama","block_size":16}`), partstest.Content(snapshot.Write),
		[]byte(`{"model":"llama","instance_id":"a","endpoint":"tcp://127.0.0.1:1"}`), partstest.Content(checkpoint.Write))
	f.Fuzz(func(t *testing.T, dump, model, held, source, checkpoint []byte) {
		var b bytes.Buffer
		w := parts.NewWriter(&b, dumpMagic, dumpFormat)
		w.Bytes(dump)
		w.Section()
		w.Bytes(model)
		partstest.Raw(w, held)
		w.Section()
		w.Bytes(source)
		partstest.Raw(w, checkpoint)
		require.NoError(t, w.End())
		s, err := New(Config{Fleet: fleet.Config{MaxBytes: 1 << 20, MaxHolders: 8, MaxBlocks: 1000}})
		require.NoError(t, err)
		defer s.Close()
		if err := s.LoadDump(&b); err != nil {
			require.ErrorIs(t, err, ErrDump)
			require.Empty(t, s.Models())
		}
		s.DropUnclaimed()
		require.Empty(t, s.Models())
	})
}
