//go:build linux

package crowd

import (
	"context"
	_ "embed"
	"encoding/hex"
	"os/exec"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/hitline/hitline/bench/process"
)

//go:embed store.py
var storeProgram string

const (
	// numClients is how many of Mooncake's own clients load and save. A session keeps its client: a copy from
	// another client's memory takes thirty times the CPU.
	numClients = 2
	// segmentUnit divides the size of a client's memory, in bytes.
	segmentUnit = 16 << 20
	// fillSteps is in how many steps the store is filled: in each the clients put at the same time.
	fillSteps = 64
)

// storeClient is a process with one of Mooncake's own clients. Safe for concurrent use.
type storeClient struct {
	mu    sync.Mutex
	child *process.Child
}

// saved counts keys that a turn has loaded and saved.
type saved struct {
	Loads  int64 `json:"loads"`
	Lost   int64 `json:"lost"`  // loads that failed: found by the lookup, and not there
	Asked  int64 `json:"asked"` // before saving
	Found  int64 `json:"found"` // of those
	Puts   int64 `json:"puts"`
	Failed int64 `json:"failed"` // puts
}

// startClients starts the clients of a store that has place for about that many keys.
func startClients(ctx context.Context, python, master string, keys int, prefixes []string, o process.Options) (clients []*storeClient, err error) {
	segment, object := storeSize(keys)
	args := append([]string{"-B", "-c", storeProgram, master, strconv.Itoa(segment), strconv.Itoa(object)}, prefixes...)
	for range numClients {
		cmd := exec.Command(python, args...)
		cmd.Env = append(process.Environ(), "PYTHONPATH=", "PYTHONUNBUFFERED=1")
		child, err := process.StartChild(ctx, "a client of the store", cmd, o)
		if err != nil {
			return clients, err
		}
		clients = append(clients, &storeClient{child: child})
	}
	return clients, nil
}

// storeSize returns the bytes of a client's memory and of an object, so that the store has place for about that many keys. The
// master's allocator rounds sizes up to four significant bits.
func storeSize(keys int) (segment, object int) {
	least := keys
	for units := 1; units <= 64; units++ {
		for i := range 7 * 8 {
			size := (8 + i%8) << (3 + i/8) // 64 to 7,680
			n := numClients * units * segmentUnit / size
			if miss := max(n-keys, keys-n); miss < least {
				least, segment, object = miss, units*segmentUnit, size
			}
		}
	}
	return segment, object
}

// do sends a request and waits for its turn and the reply.
func (c *storeClient) do(ctx context.Context, request map[string]any, hashes []byte, reply any) error {
	request["hashes"] = hex.EncodeToString(hashes)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.child.Do(ctx, 0, request, reply)
}

// fillStore puts parts of prompts, the first ones first.
func fillStore(ctx context.Context, clients []*storeClient, parts []part) error {
	for step := range fillSteps {
		var hashes [numClients][]byte
		for _, p := range parts[step*len(parts)/fillSteps : (step+1)*len(parts)/fillSteps] {
			hashes[p.owner%numClients] = append(hashes[p.owner%numClients], p.hashes...)
		}
		group, ctx := errgroup.WithContext(ctx)
		for i, c := range clients {
			group.Go(func() error { return c.do(ctx, map[string]any{"do": "fill"}, hashes[i], &struct{}{}) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// load has a turn load its hit and save its prompt. Blocks before start are the engine's own.
func (c *storeClient) load(ctx context.Context, t turn, hit int) (s saved, err error) {
	err = c.do(ctx, map[string]any{"do": "turn", "start": t.start, "hit": hit}, t.hashes, &s)
	return s, err
}
