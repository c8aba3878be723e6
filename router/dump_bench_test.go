package router

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// BenchmarkDump copies, writes and loads what 16 holders have: chains of 1,000 blocks, each held by two of them. The
// sources are paused for the copy alone.
func BenchmarkDump(b *testing.B) {
	const holders, chains, length = 16, 1000, 1000
	cfg := Config{Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}}
	s := newService(b, cfg)
	f, err := s.Fleet(llama)
	require.NoError(b, err)
	var list []*fleet.Holder
	for i := range holders {
		require.NoError(b, s.Add(source(b, llama, "engine", i, 16)))
		list = append(list, f.Get(fleet.ID{Engine: "engine", Rank: i}))
	}
	held := make([]bool, length)
	for c := range uint64(chains) {
		var hashes []byte
		for i := range uint64(length) {
			hashes = binary.BigEndian.AppendUint64(hashes, (c<<32+i)*0x9E3779B97F4A7C15)
		}
		for i := range uint64(2) {
			h := list[(c+i*5)%holders]
			require.NoError(b, h.Store(&events.Blocks{Tier: gpu, Hashes: coordinator.NewHashes(hashes, 8), BlockSize: 16}, held))
		}
	}
	var dump bytes.Buffer
	require.NoError(b, s.WriteDump(b.Context(), &dump))
	b.Run("copy", func(b *testing.B) {
		for b.Loop() {
			_, err := s.copyDump(b.Context())
			require.NoError(b, err)
		}
	})
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(dump.Len()))
		for b.Loop() {
			dump.Reset()
			require.NoError(b, s.WriteDump(b.Context(), &dump))
		}
		b.ReportMetric(float64(dump.Len())/(chains*length), "bytes/block")
	})
	b.Run("load", func(b *testing.B) {
		b.SetBytes(int64(dump.Len()))
		for b.Loop() {
			two, err := New(cfg)
			require.NoError(b, err)
			require.NoError(b, two.LoadDump(bytes.NewReader(dump.Bytes())))
			two.Close()
		}
	})
}
