package mooncake

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
)

// manyKeys returns n keys of which every third is in the fake master, and the answers.
func manyKeys(f *fakeMaster, n int) (keys []string, want []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys, want = make([]string, n), make([]int, n)
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
		if i%3 == 0 {
			f.present[keys[i]], want[i] = 1, 1
		}
	}
	return keys, want
}

// TestChunks asks for many keys. They go to the master in chunks, several at the same time, on at most
// half of the connections, and each answer is that of its key.
func TestChunks(t *testing.T) {
	for _, c := range []struct{ keys, conns, atOnce, chunks int }{
		{2*minHalfKeys - 1, 8, 1, 1},
		{2 * minHalfKeys, 8, 2, 2},
		{3*minChunkKeys - 1, 8, 2, 2},
		{6 * minChunkKeys, 8, 4, 6},
		{6 * minChunkKeys, 1, 1, 6},
		{6 * minChunkKeys, 2, 1, 6},
		{6 * minChunkKeys, 5, 2, 6},
		{20 * minChunkKeys, 8, 4, maxChunks},
		{maxChunks*maxRequestKeys + 1, 8, 4, maxChunks + 1},
	} {
		f := startFake(t, loopback, FormTenant)
		client := newClient(t, Config{Masters: []string{f.addr}, Conns: c.conns})
		keys, want := manyKeys(f, c.keys)
		var arrived, inFlight atomic.Int64
		all := make(chan struct{}) // closed when the first of all connections are at the master
		f.setReply(func(q *request, normal []byte) {
			if inFlight.Add(1) > int64(c.atOnce) {
				t.Errorf("%v: more at once", c)
			}
			if arrived.Add(1) == int64(c.atOnce) {
				close(all)
			}
			<-all
			inFlight.Add(-1)
			q.write(normal)
		})
		answers, err := client.Exists(contextWithin(t, testTimeout), backend.KeyList(keys), false)
		require.NoError(t, err, c)
		require.Equal(t, want, answers, c)
		require.EqualValues(t, c.chunks, arrived.Load(), c)
		eventually(t, "all tokens are back", func() bool { return client.tokens.Held() == 0 })
	}
}

// gapKeys are keys of which those from 100 behind an absent one on do not matter.
type gapKeys struct{ backend.KeyList }

func (k gapKeys) End(i int) int { return min(i+100, k.Len()) }

// TestStopsAtGap has a key absent in the second chunk: no chunk begins after it is known, but one that is
// under way is read.
func TestStopsAtGap(t *testing.T) {
	for conns, chunks := range map[int]int{1: 2, 4: 3} {
		f := startFake(t, loopback, FormTenant)
		client := newClient(t, Config{Masters: []string{f.addr}, Conns: conns})
		keys := gapKeys{make(backend.KeyList, 6*minChunkKeys)}
		for i := range keys.KeyList {
			keys.KeyList[i] = fmt.Sprint("key ", i)
			f.present[keys.KeyList[i]] = 1
		}
		delete(f.present, keys.KeyList[minChunkKeys+500])
		third := make(chan struct{}) // the third chunk is at the master
		f.setReply(func(q *request, normal []byte) {
			switch q.keys[0] {
			case keys.KeyList[minChunkKeys]:
				if conns > 1 {
					<-third
				}
			case keys.KeyList[2*minChunkKeys]:
				close(third)
				eventually(t, "the gap is known", func() bool { return client.tokens.Held() == 1 })
			}
			q.write(normal)
		})
		answers, err := client.Exists(contextWithin(t, testTimeout), keys, false)
		require.NoError(t, err)
		require.Len(t, answers, chunks*minChunkKeys, "%d connections", conns)
		require.EqualValues(t, chunks, f.numQueries.Load())
		require.Zero(t, answers[minChunkKeys+500])
		require.Equal(t, 1, answers[len(answers)-1])
	}
}

// TestMattersBehindGap has an absent key near the end of a chunk, behind which keys of the next one
// matter: they are asked for.
func TestMattersBehindGap(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	client := newClient(t, Config{Masters: []string{f.addr}, Conns: 1})
	keys := gapKeys{make(backend.KeyList, 6*minChunkKeys)}
	for i := range keys.KeyList {
		keys.KeyList[i] = fmt.Sprint("key ", i)
		f.present[keys.KeyList[i]] = 1
	}
	delete(f.present, keys.KeyList[minChunkKeys-50])
	answers, err := client.Exists(contextWithin(t, testTimeout), keys, false)
	require.NoError(t, err)
	require.Len(t, answers, 2*minChunkKeys)
}

// TestConnectionsInTurn has callers at the same time, and a master that closes all connections: they are
// dialled one after another, all of them, and used in this order.
func TestConnectionsInTurn(t *testing.T) {
	const conns = 4
	f := startFake(t, loopback, FormTenant)
	var mu sync.Mutex
	var dialed, used []string // addresses of connections; guarded by mu
	var dialing atomic.Int64
	hook := func(q *request, normal []byte) {
		addr := q.RemoteAddr().String()
		mu.Lock()
		switch {
		case len(q.keys) > 0:
			used = append(used, addr)
		case q.function == fnBatchExistKey:
			dialed = append(dialed, addr)
		}
		mu.Unlock()
		if len(q.keys) == 0 && q.function == fnBatchExistKey {
			if dialing.Add(1) > 1 {
				t.Error("two dials at once")
			}
			time.Sleep(time.Millisecond)
			dialing.Add(-1)
		}
		q.write(normal)
	}
	f.always.Store(&hook)
	client := newClient(t, Config{Masters: []string{f.addr}, Conns: conns})
	for range 2 {
		var callers sync.WaitGroup // they want connections
		for range conns {
			callers.Go(func() { checkExists(t, client) })
		}
		callers.Wait()
		eventually(t, "all are dialled and used in this order, when no question for the lease has one", func() bool {
			mu.Lock()
			used = nil
			mu.Unlock()
			for range 2 * conns {
				checkExists(t, client)
			}
			mu.Lock()
			defer mu.Unlock() // one that was dialled and not needed is closed again
			inOrder := slices.DeleteFunc(slices.Clone(dialed), func(addr string) bool { return !slices.Contains(used, addr) })
			first := slices.Index(inOrder, used[0])
			inOrder = append(inOrder[first:], inOrder[:first]...)
			return len(inOrder) == conns && slices.Equal(append(inOrder, inOrder...), used)
		})
		f.closeConns()
	}
}

// TestChunksBeside has other requests on all connections but one: the keys wait for nothing, and
// have this one.
func TestChunksBeside(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	client := newClient(t, Config{Masters: []string{f.addr}, Conns: 4})
	keys, want := manyKeys(f, 4*minChunkKeys)
	for range 3 {
		require.NoError(t, client.acquire(t.Context(), false))
	}
	var inFlight atomic.Int64
	f.setReply(func(q *request, normal []byte) {
		if inFlight.Add(1) > 1 {
			t.Error("two at once")
		}
		inFlight.Add(-1)
		q.write(normal)
	})
	answers, err := client.Exists(contextWithin(t, testTimeout), backend.KeyList(keys), false)
	require.NoError(t, err)
	require.Equal(t, want, answers)
	require.NoError(t, client.acquire(t.Context(), false))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = client.Exists(ctx, backend.KeyList(keys), false)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	for range 4 {
		client.release(false)
	}
}

// TestChunkFails has the master end the connection of one chunk: the call fails, and all places are
// free again.
func TestChunkFails(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	client := newClient(t, Config{Masters: []string{f.addr}})
	keys, _ := manyKeys(f, 4*minHalfKeys)
	f.setReply(func(q *request, normal []byte) {
		if q.keys[0] == keys[0] {
			q.write(normal)
			return
		}
		q.Close()
	})
	_, err := client.Exists(contextWithin(t, testTimeout), backend.KeyList(keys), false)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	eventually(t, "all tokens are back", func() bool { return client.tokens.Held() == 0 })
	f.resetReply()
	require.Eventually(t, func() bool {
		_, err := client.Exists(contextWithin(t, testTimeout), backend.KeyList(keys), false)
		return err == nil
	}, testTimeout, time.Millisecond)
}

// TestChunkNotServing has one chunk of a call answered as by a master that no longer leads, and the
// other as before: the call fails, and is no hit of the first chunk.
func TestChunkNotServing(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	client := newClient(t, Config{Masters: []string{f.addr}})
	keys, _ := manyKeys(f, 2*minHalfKeys)
	f.setReply(func(q *request, normal []byte) {
		if q.keys[0] == keys[0] {
			q.write(normal)
			return
		}
		answers := make([]int, len(q.keys))
		for i := range answers {
			answers[i] = storeNotServing
		}
		q.write(response(0, q.seq, existBody(answers, false)))
	})
	_, err := client.Exists(contextWithin(t, testTimeout), backend.KeyList(keys), false)
	require.ErrorIs(t, err, backend.ErrUnavailable)
}

// TestChunkEndsOthers has one chunk fail and the other without an answer: the call does not wait for it.
func TestChunkEndsOthers(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	client := newClient(t, Config{Masters: []string{f.addr}})
	keys, _ := manyKeys(f, 2*minHalfKeys)
	hung := make(chan struct{})
	defer close(hung)
	f.setReply(func(q *request, _ []byte) {
		if q.keys[0] == keys[0] {
			<-hung
			return
		}
		q.write(response(codeException, q.seq, textBody("boom")))
	})
	_, err := client.Exists(contextWithin(t, time.Hour), backend.KeyList(keys), false)
	require.ErrorContains(t, err, "boom")
	eventually(t, "all tokens are back", func() bool { return client.tokens.Held() == 0 })
}

// TestLargeCallsLeaveConnections has large calls hang on all connections that they may use. A
// small call has one, and all tokens are free in the end.
func TestLargeCallsLeaveConnections(t *testing.T) {
	for conns, want := range map[int]int64{2: 1, 3: 2, 8: 6} {
		f := startFake(t, loopback, FormTenant)
		client := newClient(t, Config{Masters: []string{f.addr}, Conns: conns})
		keys, _ := manyKeys(f, maxSmallKeys+1)
		open := make(chan struct{})
		var held atomic.Int64
		f.setReply(func(q *request, normal []byte) {
			if len(q.keys) > 3 {
				held.Add(1)
				<-open
			}
			q.write(normal)
		})
		var calls sync.WaitGroup
		for range 2 * conns {
			calls.Go(func() {
				_, err := client.Exists(contextWithin(t, testTimeout), backend.KeyList(keys), false)
				require.NoError(t, err)
			})
		}
		eventually(t, "some are at the master", func() bool { return held.Load() == want })
		for range 3 {
			checkExists(t, client)
		}
		require.Equal(t, want, held.Load(), "%d connections", conns)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := client.Exists(ctx, backend.KeyList(keys), false)
		cancel()
		require.ErrorIs(t, err, backend.ErrUnavailable)
		close(open)
		calls.Wait()
		eventually(t, "all tokens are back", func() bool { return client.tokens.Held() == 0 })
		require.Zero(t, client.tokens.Held())
	}
}

// TestOneConnection has one connection, and a large call of several requests: a small call has
// the connection after the first of them.
func TestOneConnection(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	client := newClient(t, Config{Masters: []string{f.addr}, Conns: 1})
	keys, want := manyKeys(f, 3*maxRequestKeys)
	first, open := make(chan struct{}), make(chan struct{})
	var sizes []int // only the connection's goroutine of the fake appends
	f.setReply(func(q *request, normal []byte) {
		if sizes = append(sizes, len(q.keys)); len(sizes) == 1 {
			close(first)
			<-open
		}
		q.write(normal)
	})
	var calls sync.WaitGroup
	calls.Go(func() {
		answers, err := client.Exists(contextWithin(t, testTimeout), backend.KeyList(keys), false)
		require.NoError(t, err)
		require.Equal(t, want, answers)
	})
	<-first
	calls.Go(func() { checkExists(t, client) })
	eventually(t, "the small call waits for the connection", func() bool { return blocksIn("checkExists", ").acquire(") })
	close(open)
	calls.Wait()
	require.Len(t, sizes, maxChunks+1)
	require.Equal(t, 3, sizes[1])
	eventually(t, "all tokens are back", func() bool { return client.tokens.Held() == 0 })
}

// blocksIn reports whether a goroutine blocks in a select, and has called these functions.
func blocksIn(functions ...string) bool {
	stacks := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if state, _, _ := strings.Cut(stack, "\n"); !strings.Contains(state, "[select") {
			continue
		}
		if !slices.ContainsFunc(functions, func(f string) bool { return !strings.Contains(stack, f) }) {
			return true
		}
	}
	return false
}
