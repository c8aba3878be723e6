//go:build linux

package crowd

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/client"
)

// lookups asks for one engine, one question at a time. Safe for concurrent use.
type lookups struct {
	mu      sync.Mutex
	conn    net.Conn // of vLLM's own, to the master
	replies *bufio.Reader
	seq     uint32
	timeout time.Duration

	hitline *client.Client // of the others
}

// dialMaster returns the lookups of vLLM's own.
func dialMaster(master string, timeout time.Duration) (*lookups, error) {
	conn, err := net.DialTimeout("tcp", master, timeout)
	if err != nil {
		return nil, fmt.Errorf("%w: the master: %w", measure.ErrLost, err)
	}
	return &lookups{conn: conn, replies: bufio.NewReaderSize(conn, 64<<10), timeout: timeout}, nil
}

// dialHitline returns the lookups of an engine over a hitline. The hitline knows the engine by its number.
func dialHitline(ctx context.Context, address string, pool coordinator.Pool, engine int, timeout time.Duration) (*lookups, error) {
	info := map[string]any{"process": fmt.Sprintf("engine %d", engine)}
	c, err := client.Dial(ctx, address, client.WithPool("", pool), client.WithClientInfo(info), client.WithTimeout(timeout))
	if err != nil {
		return nil, fmt.Errorf("%w: hitline: %w", measure.ErrLost, err)
	}
	return &lookups{hitline: c}, nil
}

// close ends the connection, also under a question.
func (l *lookups) close() {
	if l.hitline != nil {
		_ = l.hitline.Close() // it always returns nil
		return
	}
	_ = l.conn.Close()
}

// askMaster sends a request for keys and returns its answers, see answersOf.
func (l *lookups) askMaster(request []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.conn.SetDeadline(time.Now().Add(l.timeout)) // the write tells if it is closed
	l.seq++
	le.PutUint32(request[4:], l.seq)
	_, err := l.conn.Write(request)
	if err != nil {
		return nil, fmt.Errorf("%w: the master: %w", measure.ErrLost, err)
	}
	reply, err := readMessage(l.replies, replyHead)
	if err != nil {
		return nil, fmt.Errorf("%w: the master: %w", measure.ErrLost, err)
	}
	answers := answersOf(reply, existKeys(request))
	if answers == nil || le.Uint32(reply[4:]) != l.seq {
		return nil, fmt.Errorf("%w: the master answers BatchExistKey with %.60x", measure.ErrAnswer, reply)
	}
	return answers, nil
}

// askHitline returns the hit of a turn whose first blocks need not be asked for.
func (l *lookups) askHitline(ctx context.Context, t turn, start int) (tokens int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hashes := coordinator.NewHashes(t.hashes[start*workload.HashLen:], workload.HashLen).From(int64(start * blockTokens))
	hit, err := l.hitline.Lookup(ctx, int64(t.tokens), hashes)
	if err != nil {
		return 0, fmt.Errorf("%w: hitline: %w", measure.ErrLost, err)
	}
	return int(hit.Tokens), nil
}
