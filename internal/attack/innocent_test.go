//go:build linux && hitline_attack

package attack

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/netproto"
)

// The innocent client: lookups at a constant rate, each due at a time that no answer changes.
const (
	innocentConns   = 2
	innocentRate    = 200 // lookups a second, over all connections
	innocentHashes  = 64
	innocentHashLen = 32
	innocentChains  = 30
	// lastAnswers bounds the wait for answers after the last lookup.
	lastAnswers = 15 * time.Second
)

// expectation says which answers to the innocent are right.
type expectation int

const (
	exactly expectation = iota // the hit of what is stored
	atMost                     // that, or less: the attack may remove blocks
	zero                       // 0: the store behind the server has no answer
)

// question is a lookup and its right answer.
type question struct {
	request []byte
	hit     uint64 // in tokens
}

// innocent asks the same questions in turn, on two connections.
type innocent struct {
	conns     []net.Conn
	stores    [][]byte
	questions []question
	want      expectation

	begin            time.Time
	stopped          atomic.Bool
	sent, answered   [innocentConns]atomic.Int64
	lost             [innocentConns]atomic.Bool
	writers, readers sync.WaitGroup

	mu      sync.Mutex
	samples []sample
}

// sample is one lookup of the innocent.
type sample struct {
	due    time.Time
	wait   time.Duration // from due to the answer
	result result
}

type result int

const (
	right result = iota
	wrong
	refused    // answered 00
	unanswered // or the connection was lost
	numResults
)

// newInnocent connects to a server. A stored block has to be held by all of ranks.
func newInnocent(addr string, ranks []netproto.GroupRank, want expectation) (*innocent, error) {
	c := &innocent{want: want}
	chains := randomBytes("innocent chains", innocentChains*innocentHashes*innocentHashLen)
	others := randomBytes("innocent others", len(chains))
	for i := range innocentChains {
		from, to := i*innocentHashes*innocentHashLen, (i+1)*innocentHashes*innocentHashLen
		chain := chains[from:to]
		for _, at := range ranks {
			c.stores = append(c.stores, store(at, chain, innocentHashLen))
		}
		c.questions = append(c.questions, question{lookup(chain, innocentHashLen), innocentHashes * blockTokens})
		common := 4 * (i%15 + 1) // blocks; hits of the hybrid pool are multiples of 4
		diverging := slices.Concat(chain[:common*innocentHashLen], others[from+common*innocentHashLen:to])
		c.questions = append(c.questions, question{lookup(diverging, innocentHashLen), uint64(common * blockTokens)})
	}
	for range innocentConns {
		conn, err := dial(addr)
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

// close closes the connections, which ends the readers, and makes the writers end.
func (c *innocent) close() {
	c.stopped.Store(true)
	for _, conn := range c.conns {
		conn.Close()
	}
}

// prepare stores the chains and checks every answer once.
func (c *innocent) prepare() error {
	if c.want == zero {
		return nil
	}
	_ = c.conns[0].SetDeadline(time.Now().Add(startTimeout)) // it may be lost
	in := bufio.NewReader(c.conns[0])
	for _, request := range c.stores {
		_, _ = c.conns[0].Write(request) // the reader sees that it is lost
		if err := readDone(in); err != nil {
			return fmt.Errorf("attack: the innocent cannot store: %w", err)
		}
	}
	for _, q := range c.questions {
		_, _ = c.conns[0].Write(q.request) // the reader sees that it is lost
		frames, err := readMessage(in)
		if err != nil {
			return fmt.Errorf("attack: the innocent has no answer before the attack: %w", err)
		}
		if hit := netproto.ParseInt(frames[0]); hit != q.hit {
			return fmt.Errorf("attack: a hit of %d tokens before the attack, not %d", hit, q.hit)
		}
	}
	return c.conns[0].SetDeadline(time.Time{})
}

// start begins to ask.
func (c *innocent) start() {
	c.begin = time.Now().Add(10 * time.Millisecond)
	for i := range c.conns {
		c.writers.Go(func() { c.write(i) })
		c.readers.Go(func() { c.read(i) })
	}
}

// due is when lookup n of a connection is sent.
func (c *innocent) due(conn int, n int64) time.Time {
	return c.begin.Add(time.Duration(n*innocentConns+int64(conn)) * time.Second / innocentRate)
}

// question is what lookup n of a connection asks.
func (c *innocent) question(conn int, n int64) question {
	return c.questions[(n*innocentConns+int64(conn))%int64(len(c.questions))]
}

// write sends the lookups of a connection, each when it is due, whether or not the earlier ones
// are answered. If the connection is lost it only counts them.
func (c *innocent) write(conn int) {
	runtime.LockOSThread() // sleeps of a thread end sooner after their time than timers of the runtime
	defer runtime.UnlockOSThread()
	for n := int64(0); !c.stopped.Load(); n++ {
		left := unix.NsecToTimespec(max(0, time.Until(c.due(conn, n)).Nanoseconds()))
		_ = unix.Nanosleep(&left, nil) // a signal ends it early, which makes a lookup early
		c.sent[conn].Store(n + 1)
		if !c.lost[conn].Load() {
			_, _ = c.conns[conn].Write(c.question(conn, n).request) // the reader sees that it is lost
		}
	}
}

// read reads and checks the answers of a connection until its reads fail.
func (c *innocent) read(conn int) {
	var samples []sample
	in := bufio.NewReaderSize(c.conns[conn], 64<<10)
	for n := int64(0); ; n++ {
		frames, err := readMessage(in)
		if err != nil {
			c.lost[conn].Store(true)
			break
		}
		due := c.due(conn, n)
		s := sample{due: due, wait: time.Since(due)}
		hit, want := netproto.ParseInt(frames[0]), c.question(conn, n).hit
		switch {
		case len(frames[0]) == 1: // 00, or 01, which answers no lookup
			s.result = refused
		case c.want == zero && hit != 0, c.want == atMost && hit > want, c.want == exactly && hit != want:
			s.result = wrong
		}
		samples = append(samples, s)
		c.answered[conn].Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.samples = append(c.samples, samples...)
}

// stop ends the lookups and returns all of them.
func (c *innocent) stop() []sample {
	c.stopped.Store(true)
	limit := time.Now().Add(lastAnswers)
	for _, conn := range c.conns {
		_ = conn.SetWriteDeadline(limit) // it may be lost
	}
	c.writers.Wait()
	for i, conn := range c.conns {
		for c.answered[i].Load() < c.sent[i].Load() && time.Now().Before(limit) && !c.lost[i].Load() {
			time.Sleep(time.Millisecond)
		}
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // ends the reader
	}
	c.readers.Wait()
	c.close()
	for i := range c.conns {
		for n := c.answered[i].Load(); n < c.sent[i].Load(); n++ {
			due := c.due(i, n)
			c.samples = append(c.samples, sample{due, time.Since(due), unanswered})
		}
	}
	return c.samples
}

// summarize returns the longest and the median wait of the lookups that were due from begin to end,
// and counts all answers by their result, also those before and after.
func summarize(samples []sample, begin, end time.Time) (longest, p50 time.Duration, results [numResults]int) {
	waits := []time.Duration{0}
	for _, x := range samples {
		results[x.result]++
		if !x.due.Before(begin) && !x.due.After(end) {
			waits = append(waits, x.wait)
		}
	}
	return slices.Max(waits), median(waits), results
}
