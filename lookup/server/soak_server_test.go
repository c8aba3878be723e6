package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
)

// soakChild is what the server of the soak test is told. It is this test's binary
// in a process of its own, so that it can be killed, its memory read, and the race
// detector and the traps of bufpool are in it when they are in the test.
type soakChild struct {
	Listen     []string
	Pool       coordinator.Pool
	MaxEntries int64
}

const asSoakServer = "HITLINE_TEST_SOAK_SERVER"

func init() {
	text := os.Getenv(asSoakServer)
	if text == "" {
		return
	}
	if err := runSoakServer(text); err != nil {
		fmt.Fprintln(os.Stderr, "level=ERROR", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// soakMessageTimeout is short, so that messages that never end meet it. Workers
// pause in the middle of messages for far less.
const soakMessageTimeout = 8 * time.Second

// keepArrays has package bufpool keep as many arrays as it ever does, which are large enough for each
// lookup: from then on they do not grow.
func keepArrays() {
	const numKept, size = 4, 9 << 19
	var all []*bufpool.Buffer
	for range numKept {
		b := bufpool.GetFor(size)
		b.Grow(size)
		b.B = append(b.B, make([]byte, size)...) // so that it is resident
		all = append(all, b)
	}
	for _, b := range all {
		b.Release()
	}
}

// runSoakServer serves until SIGTERM, as hitline serve does, or until the standard
// input ends: then the test is gone.
func runSoakServer(text string) error {
	var cfg soakChild
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	keepArrays()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	service, err := lookup.NewService(lookup.ServiceConfig{
		Pool: cfg.Pool, Memory: index.Config{MaxBytes: 256 << 20, MaxEntries: cfg.MaxEntries},
	})
	if err != nil {
		return err
	}
	var listeners []server.Listener
	for _, address := range cfg.Listen {
		listeners = append(listeners, server.Listener{Address: address})
	}
	srv, err := server.New(service, server.Config{
		Listeners: listeners, Loops: 2, Limits: server.Limits{MessageTimeout: soakMessageTimeout},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := srv.Start(context.Background()); err != nil {
		return err
	}
	fmt.Println(strings.Join(srv.Addrs(), " "))
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			runtime.GC() // twice: pools give up in two steps
			runtime.GC()
			debug.FreeOSMemory()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			fmt.Printf("{\"heap\":%d,\"goroutines\":%d}\n", m.HeapAlloc, runtime.NumGoroutine())
		}
		os.Exit(3)
	}()
	select {
	case <-srv.Done():
		return fmt.Errorf("stopped by itself: %w", srv.Err())
	case <-signals:
	}
	ctx, cancel := context.WithTimeout(context.Background(), soakPatience)
	defer cancel()
	return srv.Shutdown(ctx)
}

// soakMemory is what a server at rest takes.
type soakMemory struct {
	Heap       int64 `json:"heap"`
	Goroutines int   `json:"goroutines"`
	rss        int64
	files      int
}

func (m soakMemory) String() string {
	return fmt.Sprintf("heap %.2f MiB, RSS %.1f MiB, %d goroutines, %d files", float64(m.Heap)/(1<<20), float64(m.rss)/(1<<20), m.Goroutines, m.files)
}

// How an incarnation of the server ended.
type soakEnding struct {
	how string    // kill or term
	at  time.Time // just before the signal
}

// soakServer is a server that is killed and started anew at the same addresses.
// Each life is an incarnation; they count from 1.
type soakServer struct {
	cfg     soakChild
	addrs   []string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	log     *bytes.Buffer // readable when cmd has ended
	mu      sync.Mutex
	number  int           // of the incarnation that is, or will be next
	up      chan struct{} // closed while it serves
	endings map[int]soakEnding
	held    []net.Conn // connections left in the middle of something
}

func newSoakServer(cfg soakChild) *soakServer {
	return &soakServer{cfg: cfg, number: 1, up: make(chan struct{}), endings: map[int]soakEnding{}}
}

// start begins an incarnation. Another process may have been given the port
// meanwhile as that of an outgoing connection; then it tries again.
func (s *soakServer) start() error {
	for end := time.Now().Add(soakPatience); ; time.Sleep(50 * time.Millisecond) {
		err := s.tryStart()
		if err == nil || s.addrs == nil || !strings.Contains(err.Error(), "address already in use") || time.Now().After(end) {
			return err
		}
	}
}

func (s *soakServer) tryStart() error {
	text, err := json.Marshal(s.cfg)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s.cmd, s.log = exec.Command(self), new(bytes.Buffer)
	s.cmd.Env = append(os.Environ(), asSoakServer+"="+string(text))
	s.cmd.Stderr = s.log
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.out = bufio.NewReader(out)
	line, err := s.out.ReadString('\n')
	if err != nil {
		_ = s.cmd.Wait()
		return fmt.Errorf("the server did not start: %s", s.log)
	}
	if s.addrs == nil { // later incarnations have the same, and workers read them
		s.addrs = strings.Fields(line)
		s.cfg.Listen = s.addrs
	}
	s.mu.Lock()
	close(s.up)
	s.mu.Unlock()
	return nil
}

// end ends the incarnation, by kill or term, and checks how it took it.
func (s *soakServer) end(how string, stopped time.Duration) error {
	s.mu.Lock()
	for _, c := range s.held {
		_ = c.Close() // a message that never ends would hold the server up
	}
	s.held = nil
	s.up = make(chan struct{})
	s.mu.Unlock()
	process := s.cmd.Process
	if stopped > 0 { // requests pile up meanwhile, sent and unread
		if err := process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		time.Sleep(stopped)
	}
	s.mu.Lock()
	s.endings[s.number] = soakEnding{how, time.Now()}
	s.mu.Unlock()
	sign := syscall.SIGTERM
	if how == "kill" {
		sign = syscall.SIGKILL
	}
	if err := process.Signal(sign); err != nil {
		return err
	}
	if stopped > 0 {
		if err := process.Signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	late := time.AfterFunc(2*soakPatience, func() { _ = process.Kill() })
	_, _ = io.Copy(io.Discard, s.out)
	err := s.cmd.Wait()
	late.Stop()
	_ = s.in.Close()
	if how == "kill" {
		err = nil
	} else if err != nil {
		err = fmt.Errorf("after SIGTERM: %w\n%s", err, s.log)
	}
	s.mu.Lock()
	s.number++
	s.mu.Unlock()
	return errors.Join(err, checkSoakLog(s.log.String()))
}

// await waits until it serves.
func (s *soakServer) await(ctx context.Context) error {
	s.mu.Lock()
	up := s.up
	s.mu.Unlock()
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// current is the number of the incarnation. A connection made before the call
// leads to this one or to one that is dead.
func (s *soakServer) current() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.number
}

// serves reports whether the incarnation is up and nobody means to end it.
func (s *soakServer) serves(incarnation int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number != incarnation {
		return false
	}
	select {
	case <-s.up:
		return true
	default:
		return false
	}
}

// ending reports whether, how and when an incarnation was told to end.
func (s *soakServer) ending(incarnation int) (soakEnding, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.endings[incarnation]
	return e, ok
}

// hold leaves a connection as it is until the incarnation ends, or so many more
// are held.
func (s *soakServer) hold(c net.Conn) {
	const most = 40
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.up:
	default:
		_ = c.Close()
		return
	}
	if s.held = append(s.held, c); len(s.held) > most {
		_ = s.held[0].Close()
		s.held = s.held[1:]
	}
}

// release closes what is held.
func (s *soakServer) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.held {
		_ = c.Close()
	}
	s.held = nil
}

// memory measures a server at rest, with the same entries each time.
func (s *soakServer) memory() (m soakMemory, err error) {
	if err := s.settle(); err != nil {
		return m, err
	}
	if _, err := io.WriteString(s.in, "memory\n"); err != nil {
		return m, err
	}
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return m, err
	}
	proc := fmt.Sprintf("/proc/%d/", s.cmd.Process.Pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		return m, err
	}
	if found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status); found != nil {
		kib, _ := strconv.ParseInt(string(found[1]), 10, 64)
		m.rss = kib << 10
	}
	files, err := os.ReadDir(proc + "fd")
	m.files = len(files)
	return m, err
}

// settle brings the server to where memory can be compared: no connections, and
// the same number of entries, those of a fill of its own.
func (s *soakServer) settle() error {
	const entries = 20_000
	ctx, cancel := context.WithTimeout(context.Background(), soakPatience)
	defer cancel()
	c, err := client.Dial(ctx, s.addrs[0])
	if err != nil {
		return err
	}
	defer c.Close()
	hashLen := s.cfg.Pool.HashLen
	fill, want := soakHashes("fill", entries, hashLen), int64(entries)
	if s.cfg.MaxEntries > 0 {
		want = min(want, s.cfg.MaxEntries)
	}
	var st api.Stat
	for filled := false; !filled || st.Connections != 1 || st.Entries != want; {
		if st.Connections == 1 { // else what is on its way would come behind
			if err := errors.Join(c.Reset(ctx), c.Store(ctx, coordinator.GroupRank{}, coordinator.NewHashes(fill, hashLen))); err != nil {
				return err
			}
			filled = true
		}
		time.Sleep(5 * time.Millisecond)
		var err error
		if st, err = c.Stat(ctx); err != nil {
			return fmt.Errorf("at rest, all workers gone: %d connections, %d entries, want 1 and %d: %w", st.Connections, st.Entries, want, err)
		}
	}
	return nil
}

// soakWarnings are the lines that peers that do wrong may cause.
var soakWarnings = regexp.MustCompile(`msg="(request refused|more requests refused|max_connections lowered.*)"|` +
	`msg="(connection closed|more connections closed)" reason=(slow_reader|in_flight|memory|message_timeout|bad_flags|command_frame|zmtp_command|bad_first_byte)( |$)`)

// checkSoakLog returns the first line of a server's log that should not be there.
func checkSoakLog(log string) error {
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "level=INFO") || line == "" {
			continue
		}
		if !strings.Contains(line, "level=WARN") || !soakWarnings.MatchString(line) {
			return fmt.Errorf("the server logged %q in\n%s", line, log[max(0, len(log)-8000):])
		}
	}
	return nil
}
