package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// asker makes one lookup, or several, with a deadline, in its own way. An error
// says that an answer was wrong or the failure of a kind that must not be; lost
// reports whether any lookup failed.
type asker func(rng *rand.Rand, token uint32) (lost bool, err error)

// lossTimeout bounds each request in the tests of losses; slack is what a loaded
// machine may add.
const (
	lossTimeout = 2 * time.Second
	slack       = lookuptest.Patience
)

// typed returns nil for the errors that a lost server may cause.
func typed(err error) error {
	if errors.Is(err, ErrConnect) != errors.Is(err, ErrNoAnswer) && !errors.Is(err, ErrReply) && !errors.Is(err, ErrRequest) {
		return nil
	}
	return fmt.Errorf("not an error of a lost connection: %w", err)
}

func syncAsker(c *Client) asker {
	return func(rng *rand.Rand, token uint32) (bool, error) {
		hit, err := c.Lookup(background, int64(token), coordinator.NewHashes(someBytes(rng, 300), 32))
		if err != nil {
			return true, typed(err)
		}
		if uint32(hit.Tokens) != token {
			return false, fmt.Errorf("hit %d, want %d", hit.Tokens, token)
		}
		return false, nil
	}
}

func batchAsker(c *Client) asker {
	return func(rng *rand.Rand, token uint32) (lost bool, err error) {
		asks := make([]BatchLookup, 1+rng.IntN(8))
		for i := range asks {
			asks[i] = BatchLookup{NumTokens: int64(token) + int64(i), Hashes: coordinator.NewHashes(someBytes(rng, 300), 32)}
		}
		whole := c.Batch(background, asks)
		for i, a := range asks {
			switch {
			case a.Err != nil:
				lost = true
				err = errors.Join(err, typed(a.Err))
			case a.Hit.Tokens != int64(token)+int64(i):
				err = errors.Join(err, fmt.Errorf("hit %d, want %d", a.Hit.Tokens, token+uint32(i)))
			}
		}
		if lost != (whole != nil) {
			err = errors.Join(err, fmt.Errorf("batch says %v, its asks lost: %v", whole, lost))
		}
		return lost, err
	}
}

func asyncAsker(a *AsyncClient) asker {
	ids := make(chan string, 5)
	for i := range cap(ids) {
		ids <- fmt.Sprint(i)
	}
	return func(rng *rand.Rand, token uint32) (bool, error) {
		id, hashes := <-ids, someBytes(rng, 300)
		defer func() { ids <- id }()
		for {
			hit, ready, err := a.Poll(id, int64(token), coordinator.NewHashes(hashes, 32))
			switch {
			case !ready && rng.IntN(2000) == 0:
				a.Discard(id)
				return true, nil
			case !ready:
				time.Sleep(time.Duration(rng.IntN(20)) * time.Microsecond)
				continue
			case err != nil:
				return true, typed(err)
			case uint32(hit.Tokens) != token:
				return false, fmt.Errorf("hit %d, want %d", hit.Tokens, token)
			}
			return false, nil
		}
	}
}

// timely makes the asker fail where a call takes longer than it may.
func timely(ask asker, within time.Duration) asker {
	return func(rng *rand.Rand, token uint32) (bool, error) {
		begun := time.Now()
		lost, err := ask(rng, token)
		if took := time.Since(begun); took > within {
			err = errors.Join(err, fmt.Errorf("took %v, lost: %v", took, lost))
		}
		return lost, err
	}
}

// fakeLater is a client of f that is not connected yet, as its connections may be cut at once.
func fakeLater(t *testing.T, f *fakeServer) *Client {
	t.Cleanup(f.all.Wait)
	return lazyClient(t, f.dialer(), lossTimeout)
}

// Connections cut at any byte, 10,000 times: every lookup is answered rightly or
// fails as it should within its time, and the client recovers by itself.
func TestClientRandomLosses(t *testing.T) {
	kinds := map[string]func(t *testing.T, f *fakeServer) asker{
		"calls":   func(t *testing.T, f *fakeServer) asker { return syncAsker(fakeLater(t, f)) },
		"batches": func(t *testing.T, f *fakeServer) asker { return batchAsker(fakeLater(t, f)) },
		"async":   func(t *testing.T, f *fakeServer) asker { return asyncAsker(fakeLater(t, f).Async()) },
		"calls over TLS": func(t *testing.T, f *fakeServer) asker {
			f.secure = true
			return syncAsker(fakeLater(t, f))
		},
		"batches over TLS": func(t *testing.T, f *fakeServer) asker {
			f.secure = true
			return batchAsker(fakeLater(t, f))
		},
	}
	losses := int64(scaled(10000) / len(kinds))
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			f := &fakeServer{}
			f.budget = func() int {
				if f.cuts.Load() >= losses {
					return -1
				}
				return rand.IntN([]int{30, 400, 3000}[rand.IntN(3)])
			}
			ask := timely(kind(t, f), lossTimeout+slack)
			var token atomic.Uint32
			var failures, answers atomic.Int64
			var all sync.WaitGroup
			for g := range uint64(3) {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(2, g))
					for f.cuts.Load() < losses && !t.Failed() {
						lost, err := ask(rng, token.Add(1000))
						if err != nil {
							t.Error(err)
						}
						if lost {
							failures.Add(1)
						} else {
							answers.Add(1)
						}
					}
				})
			}
			all.Wait()
			require.NotZero(t, failures.Load())
			require.NotZero(t, answers.Load())
			recovers(t, ask, rand.New(rand.NewPCG(3, 3)))
			t.Logf("%d connections cut: %d calls failed, %d did not", f.cuts.Load(), failures.Load(), answers.Load())
		})
	}
}

// recovers waits until 20 lookups in a row are answered: connections made before
// the last loss may still end.
func recovers(t *testing.T, ask asker, rng *rand.Rand) {
	t.Helper()
	for begun, row := time.Now(), 0; row < 20; row++ {
		lost, err := ask(rng, 16)
		require.NoError(t, err)
		if lost {
			row = 0
			time.Sleep(time.Millisecond)
		}
		require.Less(t, time.Since(begun), lookuptest.Patience, "no recovery")
	}
}

// lateConn fails the write that ends a request, and gives the reply when it is
// closed, as a socket may whose peer has shut down only its reading side.
type lateConn struct {
	net.Conn // the client's end of a connection that carries nothing
	request  []byte
	pong     chan []byte // the reply to the setup
	reply    bytes.Buffer
	closed   chan struct{}
	once     sync.Once
}

func (c *lateConn) Write(b []byte) (int, error) {
	c.request = append(c.request, b...)
	for {
		frames, used, err := netproto.ParseMessage(c.request, netproto.Limits{}, nil)
		if err != nil {
			return len(b), nil //nolint:nilerr // the peer is gone, as the test wants
		}
		c.request = c.request[used:]
		envelope := netproto.AppendFrame(netproto.AppendFrame(nil, frames[0], true), nil, true)
		if string(frames[2]) == "ping" {
			c.pong <- netproto.AppendDone(nil, envelope, nil)
			continue
		}
		c.reply.Write(netproto.AppendHit(nil, envelope, 7))
		return len(b), errors.New("broken pipe")
	}
}

func (c *lateConn) Read(b []byte) (int, error) {
	select {
	case pong := <-c.pong:
		return copy(b, pong), nil
	case <-c.closed:
		return c.reply.Read(b)
	}
}

// SetReadDeadline succeeds also where the reader begins after the end of the write.
func (c *lateConn) SetReadDeadline(time.Time) error { return nil }

func (c *lateConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A reply that comes when its request's write has failed, and before the connection
// is given up for that, ends the call: it leaves neither a caller that waits for
// ever nor hashes that count as copied.
func TestReplyAfterFailedWrite(t *testing.T) {
	expired := func(context.Context) (net.Conn, error) {
		here, _ := net.Pipe()
		return &lateConn{Conn: here, pong: make(chan []byte, 1), closed: make(chan struct{})}, nil
	}
	t.Run("call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hit, err := lazyClient(t, dialerOf(expired), defaultTimeout).Lookup(background, 32, coordinator.NewHashes(make([]byte, 64), 32))
			require.NoError(t, err)
			require.EqualValues(t, 7, hit.Tokens)
		})
	})
	t.Run("asynchronous", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := lazyClient(t, dialerOf(expired), defaultTimeout).Async()
			_, ready, err := a.Poll("r", 32, coordinator.NewHashes(make([]byte, 64), 32))
			require.NoError(t, err)
			require.False(t, ready)
			hit, err := pollReady(t, a, "r")
			require.NoError(t, err)
			require.EqualValues(t, 7, hit)
			require.True(t, a.empty())
		})
	})
}

// deafConn ends, as its reader sees it, while something is being written.
type deafConn struct {
	net.Conn // takes nothing until it is closed
	writing  chan struct{}
}

func (c *deafConn) Write(b []byte) (int, error) {
	close(c.writing)
	_, err := c.Conn.Write(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = net.ErrClosed // as a socket says it
	}
	return 0, err
}

func (c *deafConn) Read([]byte) (int, error) {
	<-c.writing
	return 0, io.EOF
}

// A connection that is lost while a request is being written fails the call for
// that: net.ErrClosed says that the client is closed.
func TestLossWhileWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lazyClient(t, dialerOf(func(context.Context) (net.Conn, error) {
			here, _ := net.Pipe()
			return &deafConn{here, make(chan struct{})}, nil
		}), defaultTimeout)
		_, err := c.Lookup(background, 32, coordinator.NewHashes(make([]byte, 64), 32))
		require.ErrorIs(t, err, ErrConnect)
		require.ErrorIs(t, err, io.EOF)
		require.NotErrorIs(t, err, net.ErrClosed)
	})
}
