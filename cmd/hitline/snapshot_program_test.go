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
