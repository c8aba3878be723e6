package examples

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/eventstest"
)

const (
	root = "../.." // of the repository

	// startTimeout and scriptTimeout are for a machine that is busy with other tests.
	startTimeout  = time.Minute
	scriptTimeout = 2 * time.Minute

	// promptTokens is how many token ids the prompt of the sandbox has, and blockTokens how many a hash covers.
	promptTokens = 4096
	blockTokens  = 16
)

// preamble is what a script begins with. start_server runs a server that its reader would leave running in a terminal
// of its own. The functions keep what they replace, but let it fail where a reader would see that it has.
const preamble = `set -eE -o pipefail
trap 'echo "failed with $?: $BASH_COMMAND" >&2' ERR
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
curl() { command curl -fsS --max-time 60 "$@"; }
source() { if [ $# = 0 ]; then cat >/dev/null; else builtin source "$@"; fi; } # fish reads its input
servers=
start_server() {
	"$@" 2>server.log &
	servers="$servers $!"
	until grep -Eq 'msg=ready|"msg":"ready"' server.log; do
		kill -0 $! 2>/dev/null || { cat server.log >&2; return 1; }
		sleep 0.02
	done
}
`

// epilogue stops the servers. Programs in the background that the script has not ended itself are a mistake, as are
// those that end badly.
const epilogue = `
pids=$(jobs -p)
for server in $servers; do kill -TERM $server; done
for i in $(seq 1000); do [ -n "$(jobs -pr)" ] || break; sleep 0.02; done
[ -z "$(jobs -pr)" ] || { echo "a program in the background goes on; end it" >&2; exit 1; }
for pid in $pids; do wait $pid || { status=$?; cat server.log >&2; exit $status; }; done
`

// programs is a folder with both programs and the files that all sandboxes have.
type programs struct {
	bin    string
	files  map[string][]byte // by name
	hashes [][]byte          // of the prompt
	flags  map[string]bool   // that any help names
}

// build builds both programs, and those that a comparison takes its rivals from.
func build(t *testing.T) *programs {
	t.Helper()
	watchSources(t)
	p := &programs{bin: filepath.Join(t.TempDir(), "bin"), files: map[string][]byte{}, flags: map[string]bool{}}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", p.bin+"/", root+"/cmd/hitline", root+"/cmd/hitbench").CombinedOutput()
	require.NoError(t, err, "%s", out)

	trace, err := os.ReadFile(root + "/bench/testdata/conversation_excerpt.jsonl")
	require.NoError(t, err)
	short := bytes.Join(bytes.SplitAfterN(trace, []byte("\n"), 41)[:40], nil)
	p.files["trace.jsonl"], p.files["conversation_trace.jsonl"] = short, short
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	_, err = w.Write(short)
	require.NoError(t, errors.Join(err, w.Close()))
	p.files["trace.jsonl.gz"] = compressed.Bytes()
	var ids strings.Builder
	for i := range promptTokens {
		fmt.Fprintln(&ids, i+1)
	}
	p.files["ids.txt"] = []byte(ids.String())
	p.files["ids.json"] = []byte("[" + strings.Join(strings.Fields(ids.String()), ",") + "]")
	p.files["index.snapshot"] = p.snapshot(t)
	p.files["prompt.hex"], p.hashes = p.prompt(t, ids.String())
	p.files["hashes"] = p.files["prompt.hex"]
	p.files["engines.token"] = []byte("0Wk3vQ9hZJ2mT7xYp0Wk3vQ9hZJ2mT7xYp012345678\n")
	for name, report := range reports {
		p.files[name], err = os.ReadFile(root + "/bench/picture/testdata/" + report)
		require.NoError(t, err)
	}
	p.files["operator.token"] = p.files["engines.token"]
	return p
}

// watchSources has go test run the tests again when a source of the programs has changed: it knows of the files that a
// test looks at, and the programs are built by another process.
func watchSources(t *testing.T) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata"):
			return fs.SkipDir
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			_, err = os.Stat(path)
		}
		return err
	}))
}

// prompt returns the hashes that hitline hash prints of the token ids in a file, and the same as bytes.
func (p *programs) prompt(t *testing.T, ids string) (text []byte, hashes [][]byte) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(p.bin, "hitline"), "hash", "--block-size", strconv.Itoa(blockTokens), "--tokens-file", "-")
	cmd.Stdin = strings.NewReader(ids)
	text, err := cmd.Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		hash, err := hex.DecodeString(strings.TrimSpace(line))
		require.NoError(t, err)
		hashes = append(hashes, hash)
	}
	return text, hashes
}

// snapshot returns a snapshot that a server has written as it stopped.
func (p *programs) snapshot(t *testing.T) []byte {
	t.Helper()
	s := &sandbox{dir: t.TempDir(), env: []string{"PATH=" + p.bin + ":" + os.Getenv("PATH"), "HITLINE_BACKEND_MEMORY_SNAPSHOT_PATH=index.snapshot"}}
	output, err := s.run("start_server hitline serve --listen tcp://127.0.0.1:0")
	require.NoError(t, err, output)
	content, err := os.ReadFile(filepath.Join(s.dir, "index.snapshot"))
	require.NoError(t, err)
	return content
}

// A sandbox is the folder that an example runs in, with what stands behind the addresses that it names.
type sandbox struct {
	dir       string
	address   string // HITLINE_ADDRESS
	addresses *strings.Replacer
	env       []string
}

// newSandbox makes a sandbox with a publisher of KV events, and with a server unless the example starts one.
func newSandbox(t *testing.T, p *programs, e example, startsServer bool) *sandbox {
	t.Helper()
	s := &sandbox{dir: t.TempDir()}
	for name, content := range p.files {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), content, 0o600))
	}
	absolute, err := filepath.Abs(root)
	require.NoError(t, err)
	for name, target := range map[string]string{"bin": p.bin, "bench": absolute + "/bench", "scripts": absolute + "/scripts"} {
		require.NoError(t, os.Symlink(target, filepath.Join(s.dir, name)))
	}
	engines := [2]*eventstest.Publisher{publish(t, p.hashes), publish(t, p.hashes)}
	if startsServer {
		s.freePorts(t, engines)
	} else {
		i := slices.IndexFunc(pools, func(r poolRule) bool { return r.text.MatchString(e.text) })
		s.startServer(t, p, pools[i].pool, engines)
	}
	if strings.Contains(e.text, "--bind") {
		connectPublisher(t, engines[0], strings.TrimPrefix(s.addresses.Replace("127.0.0.1:7559"), "tcp://"))
	}
	config := cmp.Or(e.config, defaultConfig)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "hitline.yaml"), []byte(s.addresses.Replace(config)), 0o600))
	s.env = append(s.env, "PATH="+p.bin+":"+os.Getenv("PATH"), "HOME="+s.dir, "TMPDIR="+s.dir, "HITLINE_ADDRESS="+s.address)
	return s
}

// publish starts a publisher that says again and again that its engine holds the prompt.
func publish(t *testing.T, hashes [][]byte) *eventstest.Publisher {
	t.Helper()
	p := eventstest.New(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			p.Publish(false, eventstest.Stored(nil, hashes...))
			select {
			case <-time.After(50 * time.Millisecond): // an engine's step; any will do
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
	return p
}

// connectPublisher has the publisher connect to an address as soon as something listens there.
func connectPublisher(t *testing.T, p *eventstest.Publisher, address string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			follower, err := net.Dial("tcp", address)
			if err != nil {
				time.Sleep(10 * time.Millisecond) // until it listens, or the test ends
				continue
			}
			publisher, err := net.Dial("tcp", strings.TrimPrefix(p.Endpoint, "tcp://"))
			if err == nil {
				context.AfterFunc(ctx, func() { _ = publisher.Close() })
				go func() { _, _ = io.Copy(publisher, follower) }() // ends with either connection
				_, _ = io.Copy(follower, publisher)                 // until either ends
				_ = publisher.Close()
			}
			_ = follower.Close()
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
}

// freePorts chooses the addresses of a server that the example starts. Its configuration and flags name them, and
// HITLINE_LISTEN is the default.
func (s *sandbox) freePorts(t *testing.T, engines [2]*eventstest.Publisher) {
	t.Helper()
	var free [4]string
	for i := range free {
		free[i] = freeAddress(t)
	}
	s.address = "tcp://" + free[0]
	s.env = append(s.env, "HITLINE_LISTEN="+s.address)
	s.replaceAddresses(engines, free[0], free[1], free[2], free[3])
}

// freeAddress returns an address of loopback whose port nobody listens on. It lies below those that the system gives
// to whoever asks for any, so that no other test gets it meanwhile.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(20000))
		if l, err := net.Listen("tcp", address); err == nil {
			require.NoError(t, l.Close())
			return address
		}
	}
	t.Fatal("found no free port from 12000 to 31999")
	return ""
}

// startServer starts a server that serves all that pages speak of.
func (s *sandbox) startServer(t *testing.T, p *programs, pool string, engines [2]*eventstest.Publisher) {
	t.Helper()
	path := filepath.Join(s.dir, "server.yaml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, serverConfig, pool, engines[0].Endpoint, engines[0].Replay), 0o600))
	cmd := exec.Command(filepath.Join(p.bin, "hitline"), "serve", "--config", path)
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var ready struct {
		Msg     string
		Listen  []string
		Metrics string
		Fleet   string
	}
	var lines strings.Builder
	logged := make(chan struct{})
	found := make(chan struct{})
	go func() {
		defer close(logged)
		scanner := bufio.NewScanner(log)
		for scanner.Scan() {
			lines.WriteString(scanner.Text() + "\n")
			if ready.Msg != "ready" && json.Unmarshal(scanner.Bytes(), &ready) == nil && ready.Msg == "ready" {
				close(found)
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-logged
		require.NoError(t, cmd.Wait(), "the server of the sandbox:\n%s", &lines)
	})
	select {
	case <-found:
	case <-logged:
		require.FailNow(t, "the server of the sandbox did not start", "%s", &lines)
	case <-time.After(startTimeout):
		require.FailNow(t, "the server of the sandbox did not start in time")
	}
	s.address = ready.Listen[0]
	s.replaceAddresses(engines, strings.TrimPrefix(s.address, "tcp://"), freeAddress(t), ready.Metrics, ready.Fleet)
}

// run runs a script and returns what it printed. It and its programs are ended if it takes too long.
func (s *sandbox) run(script string) (output string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", preamble+script+epilogue)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("it did not end within %v", scriptTimeout)
	}
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what an example that failed has left
	}
	return out.String(), err
}
