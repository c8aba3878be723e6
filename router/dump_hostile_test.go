package router

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// writeModels returns a dump with models that hold a block each, as a peer may send that is not ours.
func writeModels(t *testing.T, infos ...modelInfo) *bytes.Buffer {
	t.Helper()
	f, err := fleet.New(fleet.Config{BlockSize: 16})
	require.NoError(t, err)
	h, err := f.Add(fleet.ID{Engine: "a"})
	require.NoError(t, err)
	require.NoError(t, h.Store(&events.Blocks{Tier: gpu, Hashes: hashesOf(1), BlockSize: 16}, make([]bool, 1)))
	var b bytes.Buffer
	w := parts.NewWriter(&b, dumpMagic, dumpFormat)
	w.JSON(dumpInfo{Models: uint(len(infos))})
	for _, info := range infos {
		w.Section()
		w.JSON(info)
		f.Snapshot().Write(w)
	}
	require.NoError(t, w.End())
	return &b
}

// A model without a tenant is that of the default tenant, in a dump as anywhere: it does not stand beside the
// one that is configured, nor remove it.
func TestDumpOfModelWithoutTenant(t *testing.T) {
	s := newService(t, Config{Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}})
	require.NoError(t, s.LoadDump(writeModels(t, modelInfo{Name: llama.Name, BlockSize: 16})))
	require.Len(t, s.Models(), 1)
	s.DropLoaded()
	require.Len(t, s.Models(), 1)
	require.NoError(t, s.Query(t.Context(), &Query{ModelKey: llama, Hashes: hashesOf(1)}, new(Answer)))
}

// A dump of many models that do not suit fills neither the log nor the time.
func TestDumpOfManyModels(t *testing.T) {
	var logged bytes.Buffer
	s := newService(t, Config{Models: []Model{{ModelKey: llama}}, MaxModels: 1, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	var infos []modelInfo
	for i := range 3000 {
		infos = append(infos, modelInfo{Tenant: "default", Name: fmt.Sprint(strings.Repeat("x", 5000), i), BlockSize: 32})
	}
	require.ErrorIs(t, s.LoadDump(writeModels(t, infos...)), ErrDump)
	require.Zero(t, logged.Len())
	for i := range infos {
		infos[i].Name = fmt.Sprint("x", i)
	}
	require.ErrorIs(t, s.LoadDump(writeModels(t, infos...)), ErrDump)
	require.Less(t, logged.Len(), 1<<20)
}
