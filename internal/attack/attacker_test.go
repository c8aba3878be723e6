//go:build linux && hitline_attack

package attack

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/coordinator"
)

// An attack runs in a process of its own, so that its memory and its threads do not delay the
// innocent. That process says {} when it is ready, runs the attack when it gets a byte, and says in
// JSON what it has sent. It keeps its connections until its standard input ends.

// sentReport says what an attack has sent.
type sentReport struct {
	Bytes    int64
	Requests int64
	Replies  int64
	Opened   int64 // connections, in all
	Note     string
	Error    string // why the attack is not complete
}

// attackerProcess is the process of an attack, as its parent has it.
type attackerProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startAttacker starts the process that runs a row against a server, and waits until it is ready.
func startAttacker(ctx context.Context, r row, target *serverProcess) (*attackerProcess, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-row", r.name, "-target", target.addr, "-metrics", target.metrics,
		"-router", target.router, "-seconds", strconv.FormatFloat(*seconds, 'f', -1, 64), "-tls="+strconv.FormatBool(*overTLS))
	cmd.SysProcAttr = childAttributes()
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := cmp.Or(err1, err2); err != nil {
		return nil, fmt.Errorf("attack: cannot start the attacking process: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("attack: cannot start the attacking process: %w", err)
	}
	p := &attackerProcess{cmd, in, json.NewDecoder(out)}
	if _, err := p.next(); err != nil {
		p.stop()
		return nil, fmt.Errorf("attack: cannot be prepared: %w", err)
	}
	return p, nil
}

// next waits for the next report. The context of the process bounds the wait.
func (p *attackerProcess) next() (sent sentReport, err error) {
	if err := p.out.Decode(&sent); err != nil {
		return sent, fmt.Errorf("attack: the attacking process has ended or took too long: %w", err)
	}
	if sent.Error != "" {
		return sent, errors.New(sent.Error)
	}
	return sent, nil
}

// run runs the attack.
func (p *attackerProcess) run() (sentReport, error) {
	if _, err := p.in.Write([]byte("\n")); err != nil {
		return sentReport{}, fmt.Errorf("attack: the attacking process has ended: %w", err)
	}
	return p.next()
}

func (p *attackerProcess) stop() {
	_ = p.cmd.Process.Kill() // fails if it has ended
	_ = p.cmd.Wait()         // killed
}

// attacker is what an attack uses: the server, and counters of what was sent.
type attacker struct {
	addr, metrics, router            string
	bytes, requests, replies, opened atomic.Int64

	note string // of the report

	mu    sync.Mutex
	err   error
	conns []net.Conn // kept to the end of the process
}

// runAttacker is the attacking process.
func runAttacker(name string, a *attacker) error {
	rows := allRows()
	i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
	if i < 0 {
		return fmt.Errorf("attack: no row %q", name)
	}
	out := json.NewEncoder(os.Stdout)
	run, err := rows[i].prepare(a)
	if err != nil {
		return out.Encode(sentReport{Error: err.Error()})
	}
	if err := out.Encode(sentReport{}); err != nil {
		return err
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	run()
	sent := sentReport{a.bytes.Load(), a.requests.Load(), a.replies.Load(), a.opened.Load(), a.note, ""}
	if a.err != nil {
		sent.Error = a.err.Error()
	}
	if err := out.Encode(sent); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// keep keeps a connection open to the end of the process.
func (a *attacker) keep(conn net.Conn) {
	a.opened.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns = append(a.conns, conn)
}

// fail makes the row fail, as the attack is not complete.
func (a *attacker) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = cmp.Or(a.err, err)
}

// open connects n times to the server.
func (a *attacker) open(n int) ([]net.Conn, error) {
	conns := make([]net.Conn, n)
	err := inParallel(n, func(i int) (err error) {
		if conns[i], err = dial(a.addr); err == nil {
			a.keep(conns[i])
		}
		return err
	})
	return conns, err
}

// openZMTP is open, with a ZMTP handshake on each connection.
func (a *attacker) openZMTP(n int) ([]net.Conn, error) {
	conns, err := a.open(n)
	if err != nil {
		return nil, err
	}
	for _, conn := range conns {
		if _, err := conn.Write(zmtpHello()); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, make([]byte, zmtpHelloReply)); err != nil {
			return nil, fmt.Errorf("attack: no ZMTP handshake: %w", err)
		}
	}
	return conns, nil
}

// parallel is how many connections are made or filled at a time.
const parallel = 32

// inParallel calls do for 0 to n-1, parallel at a time, and returns the first error.
func inParallel(n int, do func(i int) error) error {
	var next atomic.Int64
	var first atomic.Pointer[error]
	var running sync.WaitGroup
	for range min(n, parallel) {
		running.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	running.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}

// burstTimeout bounds the wait for the replies to a burst.
const burstTimeout = 60 * time.Second

// burst writes blob, which is a number of requests, to each connection in one call, and reads
// the replies. It ends when each connection has all of them or is closed.
func (a *attacker) burst(conns []net.Conn, blob []byte, requests, replies int) {
	var running sync.WaitGroup
	for _, conn := range conns {
		_ = conn.SetDeadline(time.Now().Add(burstTimeout)) // it may be lost
		running.Go(func() { a.write(conn, blob, requests) })
		running.Go(func() { a.read(conn, replies) })
	}
	running.Wait()
}

// write writes blob, and counts it.
func (a *attacker) write(conn net.Conn, blob []byte, requests int) bool {
	n, err := conn.Write(blob)
	a.bytes.Add(int64(n))
	a.requests.Add(int64(requests))
	return err == nil
}

// read reads n replies. It returns false if the connection ends before.
func (a *attacker) read(conn net.Conn, n int) bool {
	in := bufio.NewReaderSize(conn, 256*kib)
	for range n {
		if _, err := readMessage(in); err != nil {
			return false
		}
		a.replies.Add(1)
	}
	return true
}

// forDuration calls do for n connections at a time, again and again until the attack's duration
// is over or do returns false.
func (a *attacker) forDuration(n int, do func(i int) bool) {
	end := time.Now().Add(duration())
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			for time.Now().Before(end) && do(i) {
			}
		})
	}
	running.Wait()
}

// stream writes blobs to each connection, without waiting for the replies, until the attack's
// duration is over, and reads the replies meanwhile. next returns a blob, and its requests, for
// connection i.
func (a *attacker) stream(conns []net.Conn, next func(i int) (blob []byte, requests int)) {
	end := time.Now().Add(duration())
	var readers sync.WaitGroup
	for _, conn := range conns {
		_ = conn.SetDeadline(end) // it may be lost
		readers.Go(func() { a.read(conn, math.MaxInt) })
	}
	a.forDuration(len(conns), func(i int) bool {
		blob, requests := next(i)
		return a.write(conns[i], blob, requests)
	})
	readers.Wait()
}

// storeAll sends n stores on one connection, and reads the replies meanwhile.
func (a *attacker) storeAll(n int, request func(i int) []byte) error {
	conn, err := dial(a.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		out := bufio.NewWriterSize(conn, 256*kib)
		for i := range n {
			_, _ = out.Write(request(i)) // the reader sees that it is lost
		}
		_ = out.Flush()
	}()
	in := bufio.NewReader(conn)
	for range n {
		if err := readDone(in); err != nil {
			return fmt.Errorf("attack: the server does not take the stores before the attack: %w", err)
		}
	}
	return nil
}

// storeKeys stores keys, joined, in pieces of 16,384.
func (a *attacker) storeKeys(at coordinator.GroupRank, keys []byte, hashLen int) error {
	pieces := slices.Collect(slices.Chunk(keys, 16384*hashLen))
	return a.storeAll(len(pieces), func(i int) []byte { return store(at, pieces[i], hashLen) })
}
