package redis

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/internal/ctxerr"
	"github.com/hitline/hitline/internal/idleconn"
)

// processes is what is known of the server processes without asking them.
type processes struct {
	generation atomic.Uint64             // see backend.Backend
	failure    atomic.Pointer[error]     // why the servers cannot be reached, nil if they can
	refused    atomic.Bool               // nothing listened at an address, and watch has not looked since
	asked      atomic.Bool               // somebody has asked for keys, and watch has not looked for flushes since
	mu         sync.Mutex                // guards the fields below
	conns      map[*checkedConn]struct{} // open
	ids        map[string]string         // run_id by address, "" if it is not told
	contents   map[string]contents       // by address, when they were last looked at
	primaries  string                    // of a cluster: who has which slots
}

// Generation implements backend.Backend.
func (b *Backend) Generation() uint64 { return b.processes.generation.Load() }

// Failure implements backend.Backend: an idle connection has ended, or an address refused one, and none could be made
// since.
func (b *Backend) Failure() error {
	if failure := b.processes.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// recordID begins a generation if another process answers at an address than before, or if that cannot be told.
func (p *processes) recordID(addr, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.ids[addr]
	if known && (id == "" || id != before) {
		p.generation.Add(1)
	}
	if p.ids == nil {
		p.ids = map[string]string{}
	}
	if p.ids[addr] = id; id != before {
		delete(p.contents, addr)
	}
}

// contents are what a server tells of what it has.
type contents struct {
	flushes int64 // of any database
	keys    int64 // in the one that is asked
}

// recordContents begins a generation if the server at an address was flushed since it was last looked at, and has lost
// keys by that: the flush may have been of another database.
func (p *processes) recordContents(addr string, now contents) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, known := p.contents[addr]; known && now.flushes > before.flushes && now.keys < before.keys {
		p.generation.Add(1)
	}
	if p.contents == nil {
		p.contents = map[string]contents{}
	}
	p.contents[addr] = now
}

// tellsID reports whether the server at an address tells its ID, as far as is known.
func (p *processes) tellsID(addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, known := p.ids[addr]
	return !known || id != ""
}

// recordPrimaries begins a generation if slots of a cluster have other primaries than before: a replica that has become
// one may lack keys. slots names them.
func (p *processes) recordPrimaries(slots []string) {
	slices.Sort(slots)
	primaries := strings.Join(slots, " ")
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.primaries != "" && p.primaries != primaries {
		p.generation.Add(1)
	}
	p.primaries = primaries
}

func (p *processes) addConn(w *checkedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		p.conns = map[*checkedConn]struct{}{}
	}
	p.conns[w] = struct{}{}
}

func (p *processes) removeConn(w *checkedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, w)
}

// newlyEnded reports whether connections have ended that nobody has used since the last time.
func (p *processes) newlyEnded() (some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.conns {
		uses := w.uses.Load()
		if uses == w.usesSeen && !w.endSeen && w.ended() {
			w.endSeen, some = true, true
		}
		w.usesSeen = uses
	}
	return some
}

// watchEvery is how often connections are looked at.
const watchEvery = 250 * time.Millisecond

// watch looks whether idle connections have ended, or new ones were refused, and then connects again: so the end of a
// server is noticed when nobody asks. It goes on to connect until that succeeds. While keys are asked for it looks for
// flushes. It returns when b is closed.
func (b *Backend) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-b.closing:
			return
		}
		switch p := &b.processes; {
		case p.newlyEnded() || p.refused.Swap(false) || b.Failure() != nil:
			b.connect()
		case p.asked.Swap(false):
			b.lookForFlushes()
		}
	}
}

// lookForFlushes asks all servers that tell something of themselves how often they were flushed, and how many keys they
// have. An error says nothing: whoever asks for keys meets it, too.
func (b *Backend) lookForFlushes() {
	ctx, cancel := context.WithTimeout(context.Background(), b.cfg.DialTimeout)
	defer cancel()
	_, _ = b.do(ctx, false, func(ctx context.Context) ([]int, error) {
		return nil, b.forEachPrimary(ctx, func(ctx context.Context, node *goredis.Client) error {
			addr := node.Options().Addr
			if !b.processes.tellsID(addr) {
				return nil
			}
			text, err := node.Info(ctx, "commandstats").Result()
			if err != nil {
				return err
			}
			keys, err := node.DBSize(ctx).Result()
			if err == nil {
				b.processes.recordContents(addr, contents{countFlushes(text), keys})
			}
			return err
		})
	})
}

// countFlushes returns how often a server was flushed, by a reply of INFO.
func countFlushes(info string) (flushes int64) {
	fields := infoFields(info)
	for _, command := range []string{"flushall", "flushdb"} {
		calls, _, _ := strings.Cut(strings.TrimPrefix(fields["cmdstat_"+command], "calls="), ",")
		n, _ := strconv.ParseInt(calls, 10, 64)
		flushes += n
	}
	return flushes
}

// connect asks all servers for a sign of life, on new connections if the idle ones have ended, and records the outcome.
// That none has come in time says nothing: the server may be slow.
func (b *Backend) connect() {
	ctx, cancel := context.WithTimeout(context.Background(), b.cfg.DialTimeout)
	defer cancel()
	_, err := b.do(ctx, false, func(ctx context.Context) ([]int, error) {
		return nil, b.forEachPrimary(ctx, func(ctx context.Context, node *goredis.Client) error {
			err := node.Ping(ctx).Err()
			if isNoPermission(err) {
				err = nil
			}
			return err
		})
	})
	if err == nil || ctxerr.Of(ctx) != nil {
		return // do has cleared the failure
	}
	b.processes.failure.Store(&err)
	if cluster, ok := b.client.(*goredis.ClusterClient); ok {
		cluster.ReloadState(ctx) // another may be primary by now
	}
}

// ended reports whether the server has ended the connection, which is idle.
func (w *checkedConn) ended() bool { return idleconn.Ended(w.raw) }

// SyscallConn lets the driver see that the server has ended an idle connection, under TLS, too: it fails then. What it
// returns shows nothing else. The driver calls it before it uses an idle connection, and at no other time.
func (w *checkedConn) SyscallConn() (syscall.RawConn, error) {
	if w.ended() {
		return nil, io.EOF
	}
	w.reused, w.heard = true, false
	return noRawConn{}, nil
}

// noRawConn is a syscall.RawConn that calls nobody.
type noRawConn struct{}

func (noRawConn) Control(func(uintptr)) error    { return nil }
func (noRawConn) Read(func(uintptr) bool) error  { return nil }
func (noRawConn) Write(func(uintptr) bool) error { return nil }

// onConnect returns what the driver does on each new connection to a server. It sends a PING. A server that wants a
// password replies NOAUTH to it; to a large command it would close the connection instead. Any other error
// reply is fine. Without a reply the connection must not be used: a late one would be read as the reply to the next
// command. It also asks which process answers.
func (d *dialer) onConnect(addr string) func(ctx context.Context, conn *goredis.Conn) error {
	return func(ctx context.Context, conn *goredis.Conn) error {
		asksID := d.processes.tellsID(addr)
		pipe := conn.Pipeline()
		ping := pipe.Ping(ctx)
		info := &goredis.StringCmd{}
		if asksID {
			info = pipe.Info(ctx, "server")
		}
		_, _ = pipe.Exec(ctx)
		for _, err := range []error{ping.Err(), info.Err()} {
			if _, answered := errors.AsType[goredis.Error](err); err != nil && (!answered || goredis.HasErrorPrefix(err, "NOAUTH")) {
				return err
			}
		}
		d.processes.recordID(addr, infoFields(info.Val())["run_id"])
		return nil
	}
}
