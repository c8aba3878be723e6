package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/snapshot"
)

// keptProgram is hitline as a process of its own, which keeps its index in a file.
type keptProgram struct {
	*client.Client
	cmd *exec.Cmd
	log *bufio.Scanner
	// started is the log until it was ready.
	started string
}

// startKept starts it and waits until it is ready.
func startKept(t *testing.T, yaml string) *keptProgram {
	t.Helper()
	cmd, reader, writer := startProgram(t, yaml+"log: {format: json}\n")
	require.NoError(t, writer.Close())
	p := &keptProgram{cmd: cmd, log: bufio.NewScanner(reader)}
	for p.log.Scan() && !strings.Contains(p.log.Text(), `"msg":"ready"`) {
		p.started += p.log.Text() + "\n"
	}
	address := addressOf(t, p.log.Bytes())
	var err error
	p.Client, err = client.Dial(t.Context(), address, client.WithTimeout(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// stop ends it by a signal, and waits.
func (p *keptProgram) stop(t *testing.T, sig os.Signal) {
	t.Helper()
	require.NoError(t, p.Close())
	require.NoError(t, p.cmd.Process.Signal(sig))
	for p.log.Scan() { // until its log ends, so that it does not wait for a reader
		continue
	}
	if err := p.cmd.Wait(); sig == syscall.SIGTERM {
		require.NoError(t, err)
	}
}

// depth returns how many leading blocks of keys are found.
func (p *keptProgram) depth(t *testing.T, keys []byte) int {
	t.Helper()
	hashes := coordinator.NewHashes(keys, 32)
	hit, err := p.Lookup(t.Context(), int64(hashes.Len()*workload.BlockTokens), hashes)
	require.NoError(t, err)
	return int(hit.Tokens / workload.BlockTokens)
}

// store stores a chain.
func (p *keptProgram) store(t *testing.T, keys []byte) {
	t.Helper()
	require.NoError(t, p.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
}

// held returns how many leading blocks of each request are held, and changes no order of eviction.
func (p *keptProgram) held(t *testing.T, requests [][]byte) (depths []int) {
	t.Helper()
	for _, keys := range requests {
		hashes := coordinator.NewHashes(keys, 32)
		e, err := p.Explain(t.Context(), int64(hashes.Len()*workload.BlockTokens), hashes)
		require.NoError(t, err)
		depths = append(depths, int(e.HitTokens/workload.BlockTokens))
	}
	return depths
}

// conversation returns the hashes of the requests of a recorded trace.
func conversation(t *testing.T) (requests [][]byte) {
	t.Helper()
	const trace workload.Trace = "../../bench/testdata/conversation_excerpt.jsonl"
	require.NoError(t, trace.Requests(t.Context(), workload.BlockTokens, 0, false, func(r workload.Request) error {
		requests = append(requests, workload.AppendHashes(nil, r.IDs, workload.BlockTokens))
		return nil
	}))
	return requests
}

// replay looks each request up and then stores it, as an engine does. It returns what was found.
func (p *keptProgram) replay(t *testing.T, requests [][]byte) (depths []int) {
	t.Helper()
	for _, keys := range requests {
		depths = append(depths, p.depth(t, keys))
		p.store(t, keys)
	}
	return depths
}

// A recorded trace hits after a restart in its middle what it hits without one. An index that has to evict
// holds the same blocks after a restart, and evicts nearly the same ones from then on: what its policy has
// learnt of single evictions is not in the file.
func TestTraceOverRestart(t *testing.T) {
	requests := conversation(t)
	half := len(requests) / 2
	for name, test := range map[string]struct {
		bound string
		delta int // blocks
	}{"unbounded": {"", 0}, "bounded": {"max_entries: 4000, ", 40}} {
		t.Run(name, func(t *testing.T) {
			start := func(path string) *keptProgram {
				return startKept(t, strings.Replace(keeping(path), "{snapshot", "{"+test.bound+"snapshot", 1))
			}
			folder := t.TempDir()
			control := start(filepath.Join(folder, "control"))
			p := start(filepath.Join(folder, "index"))
			before := sum(p.replay(t, requests[:half]))
			assert.Equal(t, before, sum(control.replay(t, requests[:half])))
			p.stop(t, syscall.SIGTERM)
			p = start(filepath.Join(folder, "index"))
			assert.Contains(t, p.started, "snapshot loaded")
			assert.Equal(t, control.held(t, requests[:half]), p.held(t, requests[:half]))
			rest, want := sum(p.replay(t, requests[half:])), sum(control.replay(t, requests[half:]))
			assert.InDelta(t, want, rest, float64(test.delta))
			if test.bound == "" {
				assert.Equal(t, 4144, before+rest, "as bench/testdata/README.md says")
			} else {
				assert.Less(t, before+rest, 4144, "it evicts")
			}
			p.stop(t, syscall.SIGTERM)
			control.stop(t, syscall.SIGTERM)
		})
	}
}

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}

// longChain returns the keys of a chain.
func longChain(number, n int) []byte {
	keys := make([]byte, n*32)
	random := rand.NewChaCha8([32]byte{byte(number)})
	_, _ = random.Read(keys)
	binary.LittleEndian.PutUint64(keys, uint64(number))
	return keys
}

// kill -9 in the middle of a snapshot leaves the one before, byte for byte, and the next start loads that and
// removes the rest.
func TestKilledWhileWriting(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "index")
	yaml := strings.Replace(keeping(path), "interval: 0", "interval: 1s, max_age: 0", 1)
	p := startKept(t, yaml)
	const chains, blocks = 40, 5000
	for i := range chains {
		p.store(t, longChain(i, blocks))
	}
	p.stop(t, syscall.SIGTERM)
	leftovers := func() []string {
		list, err := filepath.Glob(path + ".*.hitline-tmp")
		require.NoError(t, err)
		return list
	}
	for deadline := time.Now().Add(2 * time.Minute); len(leftovers()) == 0; {
		require.True(t, time.Now().Before(deadline), "no snapshot was met in the middle")
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		p = startKept(t, yaml)
		assert.Contains(t, p.started, fmt.Sprintf(`"entries":%d`, chains*blocks))
		for len(leftovers()) == 0 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		p.stop(t, syscall.SIGKILL)
		_, err = snapshot.Inspect(context.Background(), path)
		require.NoError(t, err)
		if len(leftovers()) > 0 { // otherwise it was complete before the signal
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(before, after))
		}
	}
	left := leftovers()[0]
	p = startKept(t, yaml)
	assert.NotContains(t, leftovers(), left, "the start removes what was left")
	assert.Equal(t, blocks, p.depth(t, longChain(7, blocks)))
	p.stop(t, syscall.SIGTERM)
}

// The program starts over a damaged file, says so in one line and finds nothing. The package snapshot tries
// many of them.
func TestProgramStartsOverDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index")
	yaml := keeping(path)
	p := startKept(t, yaml)
	keys := longChain(1, 1000)
	p.store(t, keys)
	p.stop(t, syscall.SIGTERM)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, whole[:len(whole)/2], 0o600))
	p = startKept(t, yaml)
	assert.Equal(t, 1, strings.Count(p.started, "\n"), p.started)
	assert.Contains(t, p.started, "the snapshot is refused; starting empty")
	assert.Zero(t, p.depth(t, keys))
	p.stop(t, syscall.SIGTERM)
}
