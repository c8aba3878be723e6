//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/netproto"
)

// An attack runs in a child of this process, so that its memory and its threads do not delay the
// innocent. The two talk in lines of JSON:
//
//	parent: standard input   {"server": ADDR, "metrics": ADDR}, {"go": true}, then the end
//	child: standard output   {"fake": ADDR} if there is one, {"ready": true}, {"done": true, …}
//
// The child keeps its connections until its standard input ends.

// fromParent is a line to the child.
type fromParent struct {
	Server  string `json:"server,omitempty"`
	Metrics string `json:"metrics,omitempty"`
	Go      bool   `json:"go,omitempty"`
}

// fromChild is a line from the child.
type fromChild struct {
	Fake  string `json:"fake,omitempty"`
	Ready bool   `json:"ready,omitempty"`
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
	sentReport
}

// sentReport says what an attack has sent.
type sentReport struct {
	Bytes    int64  `json:"bytes,omitempty"`
	Requests int64  `json:"requests,omitempty"`
	Replies  int64  `json:"replies,omitempty"`
	Opened   int64  `json:"opened,omitempty"` // connections, in all
	Note     string `json:"note,omitempty"`
}

// attacker is what an attack uses: the server, and counters of what was sent.
type attacker struct {
	addr, metrics string
	duration      time.Duration // of an attack that has no end of its own
	hold          time.Duration // that an attack keeps its connections
	long          bool

	bytes, requests, replies, opened atomic.Int64

	mu    sync.Mutex
	note  string
	conns []net.Conn // closed at the end
}

// runAttacker is the child: it runs one attack.
func runAttacker(name string, duration, hold time.Duration, long bool, stdin io.Reader, stdout io.Writer) error {
	row, ok := findAttack(name)
	if !ok {
		return fmt.Errorf("attack: no row %q", name)
	}
	in, out := json.NewDecoder(bufio.NewReader(stdin)), json.NewEncoder(stdout)
	a := &attacker{duration: duration, hold: hold, long: long}
	var err error
	if row.fake != nil {
		addr, err := row.fake()
		if err != nil {
			return err
		}
		if err := out.Encode(fromChild{Fake: addr}); err != nil {
			return err
		}
	}
	var line fromParent
	if err := in.Decode(&line); err != nil {
		return endOfParent(err)
	}
	a.addr, a.metrics = line.Server, line.Metrics
	run, err := row.prepare(a)
	if err != nil {
		return out.Encode(fromChild{Error: err.Error()})
	}
	if err := out.Encode(fromChild{Ready: true}); err != nil {
		return err
	}
	if err := in.Decode(&line); err != nil {
		return endOfParent(err)
	}
	answer := fromChild{Done: true}
	if err := run(); err != nil {
		answer.Error = err.Error()
	}
	answer.sentReport = sentReport{a.bytes.Load(), a.requests.Load(), a.replies.Load(), a.opened.Load(), a.note}
	if err := out.Encode(answer); err != nil {
		return err
	}
	return endOfParent(in.Decode(&line))
}

// endOfParent returns nil if err is the end of standard input.
func endOfParent(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// raiseFiles raises the limit of open files to the hard limit, which it returns.
func raiseFiles() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("attack: cannot read the limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("attack: cannot raise the limit of open files to %d: %w", limit.Max, err)
	}
	return limit.Max, nil
}

// say adds to the note of the report.
func (a *attacker) say(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.note != "" {
		a.note += "; "
	}
	a.note += fmt.Sprintf(format, args...)
}

// open connects n times to the server. The connections are closed at the end.
func (a *attacker) open(n int) ([]net.Conn, error) {
	conns := make([]net.Conn, n)
	err := inParallel(n, func(i int) error {
		conn, err := dial(a.addr)
		conns[i] = conn
		return err
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, conn := range conns {
		if conn != nil {
			a.conns = append(a.conns, conn)
			a.opened.Add(1)
		}
	}
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
func (a *attacker) burst(conns []net.Conn, blob []byte, requests, replies int) error {
	var running sync.WaitGroup
	for _, conn := range conns {
		_ = conn.SetDeadline(time.Now().Add(burstTimeout)) // it may be lost
		running.Go(func() { a.write(conn, blob, requests) })
		running.Go(func() { a.read(conn, replies) })
	}
	running.Wait()
	return nil
}

// write writes blob, and counts it.
func (a *attacker) write(conn net.Conn, blob []byte, requests int) bool {
	n, err := conn.Write(blob)
	a.bytes.Add(int64(n))
	a.requests.Add(int64(requests))
	return err == nil
}

// read reads so many replies, or up to the end of the connection. It returns how many there were.
func (a *attacker) read(conn net.Conn, replies int) int {
	var counter replyCounter
	buf := make([]byte, 256<<10)
	for counter.messages < replies {
		n, err := conn.Read(buf)
		counter.feed(buf[:n])
		if err != nil {
			break
		}
	}
	a.replies.Add(int64(counter.messages))
	return counter.messages
}

// forDuration calls do for n connections at a time, again and again until the attack's duration
// is over or do returns false.
func (a *attacker) forDuration(n int, do func(i int) bool) {
	end := time.Now().Add(a.duration)
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
	end := time.Now().Add(a.duration)
	var running sync.WaitGroup
	for i, conn := range conns {
		_ = conn.SetDeadline(end) // it may be lost
		running.Go(func() {
			for time.Now().Before(end) {
				blob, requests := next(i)
				if !a.write(conn, blob, requests) {
					return
				}
			}
		})
		running.Go(func() { a.read(conn, math.MaxInt) })
	}
	running.Wait()
}

// storeAll sends stores, each a request, on one connection, and reads the replies meanwhile.
func (a *attacker) storeAll(requests func(yield func([]byte) bool)) error {
	conn, err := dial(a.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	sent := make(chan int, 1)
	go func() {
		n := 0
		out := bufio.NewWriterSize(conn, 256<<10)
		for request := range requests {
			_, _ = out.Write(request) // Flush returns the error
			n++
		}
		if out.Flush() != nil {
			n = -1
		}
		sent <- n
	}()
	var counter replyCounter
	buf := make([]byte, 64<<10)
	for want := -2; ; {
		select {
		case want = <-sent:
		default:
		}
		if want == counter.messages {
			return nil
		}
		if want == -1 {
			return errors.New("attack: the server does not take the stores before the attack")
		}
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // it may be lost
		n, err := conn.Read(buf)
		counter.feed(buf[:n])
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("attack: the server does not take the stores before the attack: %w", err)
		}
	}
}

// storeKeys stores keys, joined, in pieces of 16,384.
func (a *attacker) storeKeys(at netproto.GroupRank, keys []byte, hashLen int) error {
	return a.storeAll(func(yield func([]byte) bool) {
		for piece := 16384 * hashLen; len(keys) > 0; keys = keys[min(piece, len(keys)):] {
			if !yield(store(at, keys[:min(piece, len(keys))], hashLen)) {
				return
			}
		}
	})
}
