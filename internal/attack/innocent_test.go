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

	"github.com/hitline/hitline/coordinator"
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
)

// question is a lookup and its right answer.
type question struct {
	request []byte
	hit     uint64 // in tokens
}

// innocent asks the same questions in turn, on its connections.
type innocent struct {
	conns     []*innocentConn
	stores    [][]byte
	questions []question
	want      expectation

	begin            time.Time
	stopped          atomic.Bool
	writers, readers sync.WaitGroup
}

// innocentConn is a connection with a goroutine that sends lookups and one that reads the answers.
type innocentConn struct {
	net.Conn
	number  int64
	sent    atomic.Int64 // lookups, when the writer has ended; 0 before
	samples []sample     // the reader's
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

// newInnocent connects to a server. A stored block has to be held by all of ranks. Over a full store every
// block is stored.
func newInnocent(addr string, ranks []coordinator.GroupRank, want expectation, fullStore bool) (*innocent, error) {
	c := &innocent{want: want}
	chains := randomBytes("innocent chains", innocentChains*innocentHashes*innocentHashLen)
	others := randomBytes("innocent others", len(chains))
	for i := range innocentChains {
		from, to := i*innocentHashes*innocentHashLen, (i+1)*innocentHashes*innocentHashLen
		chain := chains[from:to]
		for _, at := range ranks {
			if !fullStore {
				c.stores = append(c.stores, store(at, chain, innocentHashLen))
			}
		}
		c.questions = append(c.questions, question{lookup(chain, innocentHashLen), innocentHashes * blockTokens})
		common := 4 * (i%15 + 1) // blocks; hits of the hybrid pool are multiples of 4
		if fullStore {
			continue
		}
		diverging := slices.Concat(chain[:common*innocentHashLen], others[from+common*innocentHashLen:to])
		c.questions = append(c.questions, question{lookup(diverging, innocentHashLen), uint64(common * blockTokens)})
	}
	for i := range int64(innocentConns) {
		conn, err := dial(addr)
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns = append(c.conns, &innocentConn{Conn: conn, number: i})
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
	for _, conn := range c.conns {
		c.writers.Go(func() { c.write(conn) })
		c.readers.Go(func() { c.read(conn) })
	}
}

// lookup returns lookup n of a connection, and when it is due.
func (c *innocent) lookup(conn *innocentConn, n int64) (question, time.Time) {
	i := n*innocentConns + conn.number
	return c.questions[i%int64(len(c.questions))], c.begin.Add(time.Duration(i) * time.Second / innocentRate)
}

// write sends the lookups of a connection, each when it is due, whether or not the earlier ones
// are answered, and one more after stop.
func (c *innocent) write(conn *innocentConn) {
	runtime.LockOSThread() // sleeps of a thread end sooner after their time than timers of the runtime
	defer runtime.UnlockOSThread()
	for n, last := int64(0), false; !last; n++ {
		q, due := c.lookup(conn, n)
		left := unix.NsecToTimespec(max(0, time.Until(due).Nanoseconds()))
		_ = unix.Nanosleep(&left, nil) // a signal ends it early, which makes a lookup early
		if last = c.stopped.Load(); last {
			conn.sent.Store(n + 1) // before its answer can come
		}
		_, _ = conn.Write(q.request) // the reader sees that the connection is lost
	}
}

// read reads and checks the answers of a connection until it has all or the connection is lost.
func (c *innocent) read(conn *innocentConn) {
	in := bufio.NewReaderSize(conn, 64*kib)
	for n := int64(0); n == 0 || n != conn.sent.Load(); n++ {
		frames, err := readMessage(in)
		if err != nil {
			return
		}
		q, due := c.lookup(conn, n)
		s := sample{due: due, wait: time.Since(due)}
		hit := netproto.ParseInt(frames[0])
		switch {
		case len(frames[0]) == 1: // 00, or 01, which answers no lookup
			s.result = refused
		case c.want == atMost && hit > q.hit, c.want == exactly && hit != q.hit:
			s.result = wrong
		}
		conn.samples = append(conn.samples, s)
	}
}

// stop ends the lookups and returns all of them.
func (c *innocent) stop() (samples []sample) {
	c.stopped.Store(true)
	for _, conn := range c.conns {
		_ = conn.SetDeadline(time.Now().Add(lastAnswers)) // it may be lost
	}
	c.writers.Wait()
	c.readers.Wait()
	c.close()
	for _, conn := range c.conns {
		for n := int64(len(conn.samples)); n < conn.sent.Load(); n++ {
			_, due := c.lookup(conn, n)
			conn.samples = append(conn.samples, sample{due, time.Since(due), unanswered})
		}
		samples = append(samples, conn.samples...)
	}
	return samples
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
