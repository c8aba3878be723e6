package gatewayapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// programs is the folder of hitline and of the publisher of events, both built from the tree above.
var programs string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if programs, err = os.MkdirTemp("", "hitline-epp"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(programs)
	build := exec.Command("go", "-C", "../..", "build", "-o", programs+"/",
		"./cmd/hitline", "./internal/eventstest/publish")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %v\n%s", build, err, out)
		return 1
	}
	Register()
	registerPlugins()
	return m.Run()
}

// hitline runs a command of hitline and returns what it prints.
func hitline(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command(filepath.Join(programs, "hitline"), args...)
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("hitline %v: %v: %s", args, err, stderr.String())
	}
	return string(out)
}

// process is a program that runs until the test ends.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	out    io.Reader // of both streams
	stdout *bufio.Scanner
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(filepath.Join(programs, name), args...)}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	p.stdout = bufio.NewScanner(p.out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end() })
	return p
}

// end ends the process and waits for it.
func (p *process) end() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Signal(os.Interrupt)
	_ = p.cmd.Wait()
}

// engine is a publisher of events.
type engine struct {
	*process
	events, replay string
}

func startEngine(t *testing.T) *engine {
	t.Helper()
	e := &engine{process: start(t, "publish")}
	e.stdout.Scan()
	if _, err := fmt.Sscan(e.stdout.Text(), &e.events, &e.replay); err != nil {
		t.Fatalf("publish: %q: %v", e.stdout.Text(), err)
	}
	return e
}

// store says that the engine has blocks now.
func (e *engine) store(t *testing.T, hashes ...string) {
	t.Helper()
	if _, err := fmt.Fprintln(e.stdin, strings.Join(hashes, " ")); err != nil {
		t.Fatal(err)
	}
}

// server is a hitline that follows engines, which it calls as names say.
type server struct{ address, router string }

func startServer(t *testing.T, engines map[string]*engine) *server {
	t.Helper()
	var config strings.Builder
	config.WriteString("pool: {vllm: 0.33.0}\nlog: {format: json}\nrouter:\n  listen: 127.0.0.1:0\n" +
		"  models: [{name: llama, hash: {type: vllm}}]\n  sources:\n")
	for name, e := range engines {
		fmt.Fprintf(&config, "    - {instance_id: %q, endpoint: %q, replay_endpoint: %q}\n", name, e.events, e.replay)
	}
	path := filepath.Join(t.TempDir(), "hitline.yaml")
	if err := os.WriteFile(path, []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "hitline", "serve", "--listen", "tcp://127.0.0.1:0", "--config", path)
	for p.stdout.Scan() {
		var ready struct {
			Msg, Router string
			Listen      []string
		}
		if json.Unmarshal(p.stdout.Bytes(), &ready) == nil && ready.Msg == "ready" {
			drained := make(chan struct{}) // otherwise hitline would wait for its log
			go func() { defer close(drained); _, _ = io.Copy(io.Discard, p.out) }()
			t.Cleanup(func() { p.end(); <-drained })
			return &server{ready.Listen[0], "http://" + ready.Router}
		}
	}
	t.Fatal("hitline ended before it was ready")
	return nil
}

// eventually fails the test if a condition does not come true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in time: " + what)
		}
	}
}

// tokenIDs returns the token ids of a prompt.
func tokenIDs(count int) (ids []uint32) {
	for i := range count {
		ids = append(ids, uint32(i%7))
	}
	return ids
}

// blockHashes returns the hashes of a prompt's blocks, as hitline hash prints them.
func blockHashes(t *testing.T, ids []uint32, args ...string) []string {
	t.Helper()
	var text bytes.Buffer
	for _, id := range ids {
		fmt.Fprintln(&text, id)
	}
	return strings.Fields(hitline(t, text.String(), append([]string{"hash"}, args...)...))
}
