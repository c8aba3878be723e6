package compare

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hitline/hitline/backend/mooncake"
	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// startMooncake starts a master. Only an engine's node can put blocks into its
// store, and there is none, so all keys are absent.
func (s *servers) startMooncake(ctx context.Context) ([]*rival, error) {
	if s.o.MooncakeMaster == "" {
		return nil, missing("name the program with --mooncake-master; it is in the wheel mooncake-transfer-engine-non-cuda, as mooncake/mooncake_master")
	}
	path, err := process.FindProgram(s.o.MooncakeMaster, "", "")
	if err != nil {
		return nil, err
	}
	cmd, addr, err := process.MooncakeMaster(path)
	if err != nil {
		return nil, err
	}
	p, err := s.launch(ctx, cmd, func([]byte) (string, bool) { return addr, true }) // it says something first of all
	if err != nil {
		return nil, err
	}
	master, err := mooncake.New(mooncake.Config{Masters: []string{addr}, Conns: 1})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { _ = master.Close() }) // nothing is lost with it
	version, err := process.AwaitMaster(ctx, master, s.o.Timeout)
	if err != nil {
		return nil, err
	}
	r := rival{name: MooncakeExists, version: "mooncake_master " + version, allMiss: true, server: p}
	return []*rival{r.in(Usual, "backend/mooncake", func(context.Context) (client, error) { return s.askMaster(master) })}, nil
}

// askMaster returns a client that asks a master whether the keys exist that an engine asks for.
func (s *servers) askMaster(master *mooncake.Client) (client, error) {
	pool, err := coordinator.New(coordinator.Pool{ModelName: "m", HashBlockSize: s.o.BlockSize})
	if err != nil {
		return client{}, err
	}
	key := func(hash []byte) string { return string(pool.AppendKey(nil, 0, 0, hash)) }
	all := s.load.keys(func(chain int) []string {
		hashes := netproto.NewHashes(s.load.Chain(chain), hashLen)
		keys := make([]string, s.load.Hashes())
		for block := range keys {
			keys[block] = key(hashes.At(block))
		}
		return keys
	})
	ask := func(ctx context.Context, l workload.Lookup) (answer, error) {
		keys := all[l.Chain]
		if !s.load.Hits(l) {
			keys[l.Stored] = key(l.Absent[:])
		}
		ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
		defer cancel()
		start := time.Now()
		there, err := master.Exists(ctx, keys)
		if err == nil && len(there) != len(keys) {
			err = fmt.Errorf("%w: %d answers to %d keys", measure.ErrAnswer, len(there), len(keys))
		}
		blocks := slices.IndexFunc(there, func(a int) bool { return a != 1 })
		if blocks < 0 {
			blocks = len(there)
		}
		return answer{s.load.Tokens(blocks), time.Since(start)}, lost(err)
	}
	return client{ask: ask, close: func() {}}, nil // the master's client is closed with the servers
}
