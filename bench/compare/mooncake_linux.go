package compare

import (
	"context"
	"fmt"
	"time"

	"github.com/hitline/hitline/backend/mooncake"
	"github.com/hitline/hitline/bench/internal/process"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// startMooncake starts a master. Only an engine's node can put blocks into its
// store, and there is none, so all keys are absent.
func (m *meter) startMooncake(ctx context.Context) ([]*rival, error) {
	if m.o.MooncakeMaster == "" {
		return nil, missing("name the program with --mooncake-master; it is in the wheel mooncake-transfer-engine-non-cuda, as mooncake/mooncake_master")
	}
	path, err := find(m.o.MooncakeMaster, "", "")
	if err != nil {
		return nil, err
	}
	cmd, addr, err := process.MooncakeMaster(path)
	if err != nil {
		return nil, err
	}
	if _, err := m.launch(ctx, cmd, func([]byte) (string, bool) { return addr, true }); err != nil { // it says something first of all
		return nil, err
	}
	client, err := mooncake.New(mooncake.Config{Masters: []string{addr}, Conns: 1})
	if err != nil {
		return nil, err
	}
	m.closers = append(m.closers, func() { _ = client.Close() }) // nothing is lost with it
	version, err := process.AwaitMaster(ctx, client, m.o.Timeout)
	if err != nil {
		return nil, err
	}
	return []*rival{{
		name: MooncakeExists, version: "mooncake_master " + version, allMiss: true,
		note: "all keys absent (miss only); batch existence call, keys made before",
		open: func(_ context.Context, w *workload) (asker, error) {
			return &masterAsker{client: client, load: w, timeout: m.o.Timeout}, nil
		},
	}}, nil
}

// masterAsker asks a master whether keys exist.
type masterAsker struct {
	client  *mooncake.Client // shared by all numbers of hashes
	load    *workload
	timeout time.Duration
	keys    [][]string // of each chain
}

// prepare makes the keys that an engine asks for.
func (a *masterAsker) prepare() error {
	tokens := int(a.load.tokens) / a.load.hashes
	c, err := coordinator.New(coordinator.Pool{ModelName: "m", HashBlockSize: tokens})
	if err != nil {
		return err
	}
	var key []byte
	for i := range a.load.len() {
		hashes := netproto.NewHashes(a.load.chain(i), hashLen)
		keys := make([]string, a.load.hashes)
		for block := range keys {
			key = c.AppendKey(key[:0], 0, 0, hashes.At(block))
			keys[block] = string(key)
		}
		a.keys = append(a.keys, keys)
	}
	return nil
}

func (a *masterAsker) ask(ctx context.Context, chain int) (uint32, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	start := time.Now()
	there, err := a.client.Exists(ctx, a.keys[chain])
	if err == nil && len(there) != a.load.hashes {
		err = fmt.Errorf("%w: %d answers to %d keys", ErrAnswer, len(there), a.load.hashes)
	}
	if err != nil {
		return 0, 0, lost(err)
	}
	block := 0
	for block < len(there) && there[block] == 1 {
		block++
	}
	return uint32(block) * (a.load.tokens / uint32(a.load.hashes)), time.Since(start), nil
}

func (a *masterAsker) close() {}
