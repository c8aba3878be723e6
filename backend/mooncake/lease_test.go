package mooncake

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/logtest"
)

// Replies of masters to GetReplicaList, as their own clients got them.
var replicaReplies = map[string]string{
	"0.3.12.post1": "41f4ec75 04 87fd84fd0486fdfd0404800c800cfffffdfd0404800c800cfffffd800c04fffdfd04048989ff04800cffff01ff04ff0100" +
		"01 01 0100000000000000 00 2c01000000000000 000000b83e7f0000 03746370 0f3132372e302e302e313a3136343932 03000000 d007000000000000",
	"0.3.13.post1": "6d27c688 04 87fd84fd0486fdfd0404800c800cfffffdfd0404800c800cfffffd800c04fffdfd04048989ff04800cfffd800c04040401ffff01ff048504ff0100" +
		"01 01 0100000000000000 00 2c01000000000000 000000bfbe7f0000 03746370 0f3132372e302e302e313a3136343139 03000000 d007000000000000 00",
	"0.3.14": "6d27c688 05 8800 87fd84fd0486fdfd0404800c800cfffffdfd0404800c800cfffffd800c04fffdfd04048989ff04800cfffd800c04040401ffff01ff048504ff0100" +
		"01 01 0100000000000000 00 2c01000000000000 00000017347f0000 03746370 0f3132372e302e302e313a3135393331 03000000 1027000000000000 00 00 010764656661756c74",
}

func TestParseLease(t *testing.T) {
	for release, want := range map[string]time.Duration{"0.3.12.post1": 2 * time.Second, "0.3.13.post1": 2 * time.Second, "0.3.14": 10 * time.Second} {
		lease, err := parseLease(unhex(t, replicaReplies[release]))
		require.NoError(t, err, release)
		require.Equal(t, want, lease, release)
	}
	const places = "6c27c688 01 05" + // not recorded
		"0100000000000000 01 2c01000000000000 0000000000000000 03746370 00 03000000" +
		"0200000000000000 02 026162 2c01000000000000 03000000" +
		"0300000000000000 03 00112233445566778899aabbccddeeff 2c01000000000000 00 03000000" +
		"0400000000000000 04 0161 010000000000000002000000000000000300000000000000 04000000 03000000" +
		"0500000000000000 00 2c01000000000000 0000000000000000 00 00 03000000" +
		"ffffffffffffffff 01 0102030405060708"
	lease, err := parseLease(unhex(t, places))
	require.NoError(t, err)
	require.Equal(t, maxLease, lease)
	for body, want := range map[string]error{
		"6c27c688 00 40fdffff":      errNotFound,
		"6c27c688 00 0efcffff":      backend.ErrUnavailable,
		"6c27c688 00 00000000":      backend.ErrReply,
		"6e27c688 00 40fdffff":      backend.ErrReply,
		"6c27c688 01 00 d007000000": backend.ErrReply,
		"6c27c688 01 01 0100000000000000 05 00000000 d007000000000000 00": backend.ErrReply,
		"6c27c688 01 00 d007000000000000 00 00":                           backend.ErrReply,
		"6d27c688 01 8800 01 00 d007000000000000 00":                      backend.ErrReply,
	} {
		_, err := parseLease(unhex(t, body))
		require.ErrorIs(t, err, want, body)
	}
}

// The request for a key is that of Mooncake's own client, without the literal.
func TestEncodeKeyTenant(t *testing.T) {
	require.Equal(t, unhex(t, "d81ef97c 05616c706861 0764656661756c74"), appendKeyTenant(nil, "alpha", "default"))
}

// The lease is asked for once after the first found key, and again of another process at the same address.
func TestLearnLease(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}})
	exists := func(key string) {
		_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"absent", key}, false)
		require.NoError(t, err)
	}
	waitFilled(t, c)
	exists("absent too")
	require.Equal(t, backend.Lease{Duration: DefaultLease}, c.Lease())
	require.Zero(t, f.leaseAsked.Load())
	for range 5 {
		exists("here")
		eventually(t, "the lease is known", func() bool { return c.Lease().Stated == 2*time.Second })
	}
	require.EqualValues(t, 1, f.leaseAsked.Load())
	require.Equal(t, 2*time.Second, c.Lease().Duration)
	f.stop()

	f = startFake(t, f.addr, FormTenant)
	f.mu.Lock()
	f.lease = 500
	f.mu.Unlock()
	eventually(t, "the new lease is known", func() bool {
		_, _ = c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
		return c.Lease().Stated == 500*time.Millisecond
	})

	byHand := newClient(t, Config{Masters: []string{f.addr}, Lease: time.Minute})
	waitFilled(t, byHand)
	checkExists(t, byHand)
	eventually(t, "the lease is known", func() bool { return byHand.Lease().Stated == 500*time.Millisecond })
	require.Equal(t, time.Minute, byHand.Lease().Duration)
}

// A master whose reply is not understood is asked once, and the log says it once. Its connection is kept.
func TestUnknownLease(t *testing.T) {
	for name, reply := range map[string]func(q *request, normal []byte){
		"no such function": nil,
		"other reply":      func(q *request, _ []byte) { q.write(response(0, q.seq, unhex(t, "0a0b0c0d 01"))) },
		"error of the store": func(q *request, _ []byte) {
			q.write(response(0, q.seq, le.AppendUint32(append(appendHead(nil, typeReplicas, 1), 0), uint32(0xfffffc0e))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, loopback, FormTenant)
			f.lease = 0
			if reply != nil {
				answer := func(q *request, normal []byte) {
					if q.function != fnGetReplicaList {
						q.write(normal)
						return
					}
					reply(q, normal)
				}
				f.always.Store(&answer)
			}
			var log logtest.Buffer
			c := newClient(t, Config{Masters: []string{f.addr}, Conns: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			waitFilled(t, c)
			conns := f.accepted.Load()
			const line = "does not say how long it leases a found block"
			for range 10 {
				checkExists(t, c)
				eventually(t, "it is logged, and the connection is idle", func() bool {
					return strings.Contains(log.String(), line) && c.tokens.Held() == 0
				})
			}
			require.Equal(t, 1, strings.Count(log.String(), line))
			require.Equal(t, conns, f.accepted.Load())
			require.Zero(t, c.Lease().Stated)
		})
	}
}

// A key that is gone when the lease is asked for, and a master that does not answer, say nothing: a later call asks again.
func TestLeaseAskedAgain(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}})
	answer := func(q *request, normal []byte) {
		if q.function == fnGetReplicaList {
			normal = response(0, q.seq, le.AppendUint32(append(appendHead(nil, typeReplicas, 1), 0), uint32(0xfffffd40)))
		}
		q.write(normal)
	}
	f.always.Store(&answer)
	eventually(t, "it has been asked twice", func() bool { checkExists(t, c); return f.leaseAsked.Load() > 1 })
	f.always.Store(nil)
	eventually(t, "the lease is known", func() bool { checkExists(t, c); return c.Lease().Stated == 2*time.Second })
}

// The lease is learnt though there are always calls that wait for a connection.
func TestLearnLeaseUnderLoad(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}, Conns: 2})
	waitFilled(t, c)
	slow := func(q *request, normal []byte) { time.Sleep(time.Millisecond); q.write(normal) }
	f.setReply(slow)
	var callers sync.WaitGroup
	var key atomic.Pointer[string]
	key.Store(new(string)) // absent
	ctx, cancel := context.WithCancel(t.Context())
	for range 8 {
		callers.Go(func() {
			for ctx.Err() == nil {
				_, _ = c.Exists(ctx, backend.KeyList{*key.Load()}, false)
			}
		})
	}
	defer callers.Wait()
	defer cancel()
	eventually(t, "all callers call", func() bool { return f.numQueries.Load() > 32 })
	here := "here"
	key.Store(&here)
	eventually(t, "the lease is known", func() bool { return c.Lease().Stated == 2*time.Second })
}
