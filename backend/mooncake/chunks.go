package mooncake

import (
	"context"
	"sync"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/requesterror"
	"golang.org/x/sync/errgroup"
)

const (
	// minChunkKeys is the least number of keys of a chunk if there are more than two. A master sorts
	// the keys of a request by 1,024 shards, and takes a lock for each shard that has one.
	minChunkKeys = 1024
	// minHalfKeys is the same for two chunks. A master takes one to three microseconds for a key, and
	// 30 for a request of one key.
	minHalfKeys = 256
	// maxChunks bounds the chunks of calls of up to maxChunks*maxRequestKeys keys.
	maxChunks = 16
	// maxSmallKeys is the number of keys above which a call is large. A master takes up to 8 ms
	// for them.
	maxSmallKeys = 4096
)

// existCall is one call of Exists, whose keys are asked for in chunks. Chunks begin in the order of
// keys: those asked for are always the first ones. Safe for concurrent use.
type existCall struct {
	keys     backend.Keys
	peek     bool  // nothing is to be leased
	answers  []int // one for each key; whoever has begun a chunk writes its answers
	chunkLen int

	mu   sync.Mutex
	next int // first key that no chunk has begun with
	end  int // keys from here on do not matter
}

func newExistCall(keys backend.Keys, peek bool) *existCall {
	n := keys.Len()
	return &existCall{keys: keys, peek: peek, answers: make([]int, n), chunkLen: chunkLen(n), end: n}
}

// chunkLen returns the number of keys of a chunk of a call for n keys.
func chunkLen(n int) int {
	chunks := max(1, min(maxChunks, max(n/minChunkKeys, min(2, n/minHalfKeys))))
	return min(maxRequestKeys, (n+chunks-1)/chunks)
}

// begin returns the keys [from, to) of the next chunk, none if no more of them matter.
func (e *existCall) begin() (from, to int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if from = e.next; from < e.end {
		e.next = min(from+e.chunkLen, len(e.answers))
	}
	return from, e.next
}

// finish records that the keys [from, to) have been answered.
func (e *existCall) finish(from, to int) {
	for i := from; i < to; i++ {
		if e.answers[i] == 1 {
			continue
		}
		if end := e.keys.End(i); end < len(e.answers) {
			e.mu.Lock()
			e.end = min(e.end, end)
			e.mu.Unlock()
			return // later ones end it later
		}
	}
}

// exist asks for keys and returns one answer for each that still matters. Connections take chunks of
// many keys as they become free, each connection one at a time. exist waits for one connection, and
// takes more only if they are free, at most half of all. Large calls leave some to the others. The
// first chunk that fails ends the others; exist returns its error when all have ended.
func (c *Client) exist(ctx context.Context, keys backend.Keys, peek bool) ([]int, error) {
	e := newExistCall(keys, peek)
	large := len(e.answers) > maxSmallKeys
	if err := c.acquire(ctx, large); err != nil {
		return nil, err
	}
	conns, chunks := 1, (len(e.answers)+e.chunkLen-1)/e.chunkLen
	for conns < min(chunks, c.cfg.Conns/2) && c.tryAcquire(large) {
		conns++
	}
	if conns == 1 {
		err := c.pull(ctx, e, large)
		return e.answers[:e.next], err
	}
	group, ctx := errgroup.WithContext(ctx)
	for range conns {
		group.Go(func() (err error) {
			defer requesterror.Recover(&err)
			return c.pull(ctx, e, large)
		})
	}
	err := group.Wait()
	return e.answers[:e.next], err
}

// pull asks for chunks until no more matter. Between two requests others may have the connection. The
// caller has called acquire, and pull releases.
func (c *Client) pull(ctx context.Context, e *existCall, large bool) error {
	for from, to := 0, 0; ; {
		done, err := c.pullOnConn(ctx, e, &from, &to, large)
		if done || err != nil {
			return err
		}
		if err := c.acquire(ctx, large); err != nil {
			return err
		}
	}
}

// pullOnConn asks for the rest [from, to) of a chunk and for further ones on one connection, until
// none is left or other calls wait for a connection. Then it releases.
func (c *Client) pullOnConn(ctx context.Context, e *existCall, from, to *int, large bool) (done bool, err error) {
	defer c.release(large)
	err = c.withConn(ctx, func(cn *conn) error {
		for {
			if *from == *to {
				*from, *to = e.begin()
			}
			if done = *from == *to; done {
				return nil
			}
			form := c.questionForm(cn, e.peek)
			end, err := cn.batchExist(form, e.keys, *from, *to, c.cfg.Tenant, e.answers)
			if form == formProbe && isUnknownCall(err) {
				c.recordNoProbes()
				continue // in the other form
			}
			if err != nil {
				return err
			}
			if err := c.checkServing(e.answers[*from:end]); err != nil {
				return err
			}
			e.finish(*from, end)
			if *from = end; c.tokens.IsWaited() {
				return nil
			}
		}
	})
	return done, err
}

// checkServing fails if all answers are the same error of the whole store.
func (c *Client) checkServing(answers []int) error {
	code := commonError(answers)
	if code == storeNotServing || code == storeNotInMode {
		c.recheckLeader()
	}
	if code != 0 {
		return notServing(code)
	}
	return nil
}
