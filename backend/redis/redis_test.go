package redis

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/internal/storetest"
)

// block is the key of block i of a group on a rank.
func block(prefix string, group, tp, i int) string {
	return fmt.Sprintf("%s@tp_rank:%d@pcp0@dcp0@pp_rank:0@group:%d@%x", prefix, tp, group, sha256.Sum256(fmt.Append(nil, i)))
}

// blocks returns n keys, in the order of a lookup.
func blocks(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = block(prefix, 0, i%2, i/2)
	}
	return keys
}

// checkAllCalls checks Exists after each of Store, Evict and Reset, and Info.
func checkAllCalls(t *testing.T, b *Backend) {
	t.Helper()
	ctx := testContext(t)
	keys := blocks(b.cfg.KeyPrefix, 3001)
	want := make([]int, len(keys))
	check := func() {
		t.Helper()
		got, err := b.Exists(ctx, backend.KeyList(keys), false)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	check()
	require.NoError(t, b.Store(ctx, keys[:2500]))
	require.NoError(t, b.Store(ctx, keys[:2500]))
	for i := range 2500 {
		want[i] = 1
	}
	check()
	require.NoError(t, b.Evict(ctx, keys[700:703]))
	require.NoError(t, b.Evict(ctx, keys[700:703]))
	want[700], want[701], want[702] = 0, 0, 0
	check()
	sample, err := b.Sample(ctx)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(sample.Keys), maxSampleKeys, "of all nodes")
	require.Contains(t, keys, sample.Keys[0])
	info, err := b.Info(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, info.Version)
	require.Positive(t, info.RoundTrip)
	require.NoError(t, b.Reset(ctx))
	clear(want)
	check()
	answers, err := b.Exists(ctx, backend.KeyList(nil), false)
	require.NoError(t, err)
	require.Empty(t, answers)
	require.NoError(t, b.Store(ctx, nil))
	require.NoError(t, b.Evict(ctx, nil))
	require.NoError(t, b.Reset(ctx), "of nothing")
}

func TestServers(t *testing.T) {
	forEachServer(t, func(t *testing.T, binary string) {
		s := storetest.StartServer(t, binary)
		checkAllCalls(t, testBackend(t, Config{URL: "redis://" + s.Addr + "/3"}))
		info, err := testBackend(t, Config{URL: "valkey://" + s.Addr}).Info(testContext(t))
		require.NoError(t, err)
		require.Equal(t, []any{"standalone", "master", 1}, []any{info.Mode, info.Role, info.Nodes})
		require.Equal(t, serverName(binary), info.Server)
	})
}

func TestCluster(t *testing.T) {
	forEachServer(t, func(t *testing.T, binary string) {
		var c *storetest.Cluster
		if serverName(binary) == "redis" {
			c = sharedCluster(t)
		} else {
			c = storetest.StartCluster(t, binary)
			t.Cleanup(c.Stop)
		}
		b := testBackend(t, Config{URL: c.URL()})
		checkAllCalls(t, b)
		info, err := b.Info(testContext(t))
		require.NoError(t, err)
		require.Equal(t, []any{"cluster", 3, serverName(binary)}, []any{info.Mode, info.Nodes, info.Server})
		checkAllCalls(t, testBackend(t, Config{URL: "valkey-cluster://" + c.Nodes[2].Addr}))
	})
}

func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "hl-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	storetest.StartRedis(t, "--unixsocket", path, "--requirepass", "p@ss/word?")
	storetest.Eventually(t, "it serves the socket, too", func() bool {
		conn, err := net.Dial("unix", path)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	checkAllCalls(t, testBackend(t, Config{URL: "unix://:p%40ss%2Fword%3F@" + path + "?db=2"}))
}

func TestPasswordAndACL(t *testing.T) {
	s := storetest.StartRedis(t, "--requirepass", "open", "--user", "reader", "on", ">secret", "~m@*", "+exists",
		"--user", "writer", "on", ">secret", "~m@*", "+exists", "+set", "+unlink", "+scan", "+ping", "+info",
		"--user", "half", "on", ">secret", "~m@tp_rank:0@*", "+exists", "+set")
	checkAllCalls(t, testBackend(t, Config{URL: "redis://:open@" + s.Addr}))
	checkAllCalls(t, testBackend(t, Config{URL: "redis://writer:secret@" + s.Addr}))
	reader := testBackend(t, Config{URL: "redis://reader:secret@" + s.Addr})
	keys := blocks("m", 20)
	_, err := reader.Exists(testContext(t), backend.KeyList(keys), false)
	require.NoError(t, err)
	for _, err := range []error{reader.Store(testContext(t), keys), reader.Evict(testContext(t), keys), reader.Reset(testContext(t))} {
		require.ErrorIs(t, err, backend.ErrReadOnly)
	}
	half := testBackend(t, Config{URL: "redis://half:secret@" + s.Addr}) // may use every other key only
	require.NoError(t, half.Store(testContext(t), keys[:1]))
	require.ErrorIs(t, half.Store(testContext(t), keys[:2]), backend.ErrReadOnly, "the first is there, the second is refused")
	info, err := reader.Info(testContext(t))
	require.NoError(t, err)
	require.Equal(t, Info{Nodes: 1, RoundTrip: info.RoundTrip}, info)
	_, err = testBackend(t, Config{URL: "redis://reader:secret@" + s.Addr, KeyPrefix: "other"}).Exists(testContext(t), backend.KeyList(blocks("other", 3)), false)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "NOPERM")
}

func TestTLS(t *testing.T) {
	s, cert, key := storetest.StartTLSRedis(t, "--requirepass", "open")
	checkAllCalls(t, testBackend(t, Config{URL: fmt.Sprintf("rediss://:open@%s?ca=%s&cert=%s&key=%s", s.Addr, cert, cert, key)}))
	checkAllCalls(t, testBackend(t, Config{URL: fmt.Sprintf("valkeys://:open@%s?skip_verify=true&cert=%s&key=%s", s.Addr, cert, key)}))
	for want, query := range map[string]string{
		"certificate signed by unknown authority": "?cert=" + cert + "&key=" + key,
		"not valid for any names":                 "?server_name=other&ca=" + cert + "&cert=" + cert + "&key=" + key,
		"does it want a certificate":              "?ca=" + cert,
	} {
		_, err := testBackend(t, Config{URL: "rediss://:open@" + s.Addr + query}).Exists(testContext(t), backend.KeyList(blocks("m", 1)), false)
		require.ErrorIs(t, err, backend.ErrMismatch)
		require.ErrorContains(t, err, want)
	}
}

// TestPresence checks Exists for many patterns of present keys, some of them twice.
func TestPresence(t *testing.T) {
	s, c := storetest.StartRedis(t), sharedCluster(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, url := range []string{"redis://" + s.Addr, c.URL()} {
		b := testBackend(t, Config{URL: url})
		for _, n := range []int{1, 2, 31, 33, 511, 512, 513, 1200, readBatch + 700} {
			for _, share := range []float64{0, 0.001, 0.5, 0.999, 1} {
				if n > readBatch && (share != 0.999 || testing.Short()) {
					continue
				}
				keys := blocks("m", n)
				for range n / 10 {
					keys[rng.IntN(n)] = keys[rng.IntN(n)]
				}
				present, want := map[string]bool{}, make([]int, n)
				var store []string
				for _, key := range keys {
					if _, ok := present[key]; !ok {
						present[key] = rng.Float64() < share
						if present[key] {
							store = append(store, key)
						}
					}
				}
				for i, key := range keys {
					if present[key] {
						want[i] = 1
					}
				}
				require.NoError(t, b.Reset(testContext(t)))
				require.NoError(t, b.Store(testContext(t), store))
				got, err := b.Exists(testContext(t), backend.KeyList(keys), false)
				require.NoError(t, err)
				require.Equal(t, want, got, "%s %d keys, share %v", url, n, share)
			}
		}
		require.NoError(t, b.Reset(testContext(t)))
	}
}

// TestMovingSlots checks Exists while a cluster moves a slot from node to node.
func TestMovingSlots(t *testing.T) {
	c := sharedCluster(t)
	b := testBackend(t, Config{URL: c.URL(), KeyPrefix: "{tag}"})
	keys := blocks("{tag}", 300)
	ctx := testContext(t)
	require.NoError(t, b.Store(ctx, keys[:200]))
	slot, err := c.Nodes[0].Client(t).ClusterKeySlot(ctx, keys[0]).Result()
	require.NoError(t, err)
	from, to := c.Nodes[min(int(slot)/5461, 2)], c.Nodes[(min(int(slot)/5461, 2)+1)%3]
	fromID, err := from.Client(t).Do(ctx, "cluster", "myid").Text()
	require.NoError(t, err)
	toID, err := to.Client(t).Do(ctx, "cluster", "myid").Text()
	require.NoError(t, err)
	want := make([]int, len(keys))
	for i := range 200 {
		want[i] = 1
	}
	check := func() {
		t.Helper()
		got, err := b.Exists(ctx, backend.KeyList(keys), false)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	check()
	require.NoError(t, to.Client(t).Do(ctx, "cluster", "setslot", slot, "importing", fromID).Err())
	require.NoError(t, from.Client(t).Do(ctx, "cluster", "setslot", slot, "migrating", toID).Err())
	for _, key := range keys[:100] {
		require.NoError(t, from.Client(t).Migrate(ctx, "127.0.0.1", to.Port(), key, 0, testTimeout).Err())
	}
	check() // each node has a part
	for _, key := range keys[100:200] {
		require.NoError(t, from.Client(t).Migrate(ctx, "127.0.0.1", to.Port(), key, 0, testTimeout).Err())
	}
	for _, n := range []*storetest.Redis{to, from, c.Nodes[0], c.Nodes[1], c.Nodes[2]} {
		require.NoError(t, n.Client(t).Do(ctx, "cluster", "setslot", slot, "node", toID).Err())
	}
	check()
	require.NoError(t, b.Reset(ctx))
	clear(want)
	check()
	for _, n := range []*storetest.Redis{from, to, c.Nodes[0], c.Nodes[1], c.Nodes[2]} { // back to where it was
		require.NoError(t, n.Client(t).Do(ctx, "cluster", "setslot", slot, "node", fromID).Err())
	}
}

// TestResetSparesOthers fills a database with keys that resemble those of the pool.
func TestResetSparesOthers(t *testing.T) {
	s, c := storetest.StartRedis(t), sharedCluster(t)
	const prefix = `p*@m[a-z]?\^{x}`
	others := []string{
		`p*@m[a-z]?\^{x}`, `p*@m[a-z]?\^{x}@tp_rank:notes`, `pq@mbz\^{x}@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@ab`,
		"x" + block(prefix, 0, 0, 1), block(prefix+"2", 0, 0, 1), block(`p*@mbz\^{x}`, 0, 0, 1),
		block(prefix, 0, 0, 1) + "@more", strings.ToUpper(block(prefix, 0, 0, 1)), block("m", 0, 0, 1),
		block(prefix, 0, 0, 1)[:len(prefix)+len("@tp_rank:0@pcp0@dcp0@pp_rank:0@group:")] + "@ab",
	}
	for url, client := range map[string]goredis.UniversalClient{
		"redis://" + s.Addr: s.Client(t),
		c.URL():             goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{c.Nodes[1].Addr}, Protocol: 2}),
	} {
		defer client.Close()
		for _, other := range others {
			require.NoError(t, client.Set(testContext(t), other, "x", 0).Err())
		}
		other := testBackend(t, Config{URL: url, KeyPrefix: "m"})
		require.NoError(t, other.Store(testContext(t), blocks("m", 10)[2:]))
		b := other.WithPrefix(prefix)
		keys := blocks(prefix, 5000)
		require.NoError(t, b.Store(testContext(t), keys))
		require.NoError(t, b.Reset(testContext(t)))
		for _, other := range others {
			require.EqualValues(t, 1, client.Exists(testContext(t), other).Val(), "%q", other)
		}
		answers, err := other.Exists(testContext(t), backend.KeyList(blocks("m", 10)[2:]), false)
		require.NoError(t, err)
		require.Equal(t, []int{1, 1, 1, 1, 1, 1, 1, 1}, answers)
		answers, err = b.Exists(testContext(t), backend.KeyList(keys), false)
		require.NoError(t, err)
		require.Equal(t, make([]int, 5000), answers)
		require.NoError(t, other.Reset(testContext(t)))
	}
}

func TestTimeToLive(t *testing.T) {
	s := storetest.StartRedis(t)
	b := testBackend(t, Config{URL: "redis://" + s.Addr, TTL: time.Minute})
	keys := blocks("m", 3)
	client := s.Client(t)
	require.NoError(t, b.Store(testContext(t), keys[:2]))
	require.InDelta(t, time.Minute, client.PTTL(testContext(t), keys[0]).Val(), float64(10*time.Second))
	require.NoError(t, client.PExpire(testContext(t), keys[0], time.Second).Err())
	require.NoError(t, client.Set(testContext(t), keys[1], "another's", 0).Err())
	require.NoError(t, b.Store(testContext(t), keys))
	for _, key := range keys {
		require.InDelta(t, time.Minute, client.PTTL(testContext(t), key).Val(), float64(10*time.Second), "counted anew")
	}
	require.Equal(t, "another's", client.Get(testContext(t), keys[1]).Val())

	absent := block("m", 5, 0, 0)
	expired, err := b.refreshTTL(testContext(t), []string{keys[0], absent})
	require.NoError(t, err)
	require.Equal(t, []string{absent}, expired)

	short := testBackend(t, Config{URL: "redis://" + s.Addr, TTL: time.Millisecond})
	for range 20 { // some expire between SET and PEXPIRE
		require.NoError(t, short.Store(testContext(t), keys))
	}
	noLimit := testBackend(t, Config{URL: "redis://" + s.Addr})
	require.Eventually(t, func() bool {
		answers, err := noLimit.Exists(testContext(t), backend.KeyList(keys), false)
		return err == nil && fmt.Sprint(answers) == "[0 0 0]"
	}, testTimeout, time.Millisecond)
	require.NoError(t, client.Set(testContext(t), keys[1], "another's", 0).Err())
	require.NoError(t, noLimit.Store(testContext(t), keys))
	require.EqualValues(t, -1, client.PTTL(testContext(t), keys[0]).Val())
	require.Equal(t, "another's", client.Get(testContext(t), keys[1]).Val())
}

func TestForeignKeys(t *testing.T) {
	s := storetest.StartRedis(t)
	b := testBackend(t, Config{URL: "redis://" + s.Addr})
	for _, key := range []string{"", "x", "other" + block("m", 0, 0, 0), block("n", 0, 0, 0), block("m", 0, 0, 0) + "g"} {
		require.Error(t, b.Store(testContext(t), []string{block("m", 0, 0, 1), key}), "%q", key)
		require.Error(t, b.Evict(testContext(t), []string{key}), "%q", key)
	}
	require.Zero(t, s.Client(t).DBSize(testContext(t)).Val())
}

// TestSample samples keys of several pools and checks the limits.
func TestSample(t *testing.T) {
	s := storetest.StartRedis(t, "--user", "reader", "on", ">secret", "~*", "+exists", "--user", "scanner", "on", ">secret", "~*", "+scan")
	keys := testBackend(t, Config{URL: "redis://" + s.Addr})
	require.NoError(t, s.Client(t).MSet(testContext(t), "other", "x", "m@tp_rank:0@group:", "x", "m@tp_rank:0@group:0", "a string").Err())
	require.NoError(t, keys.Store(testContext(t), blocks("m", 10)))
	got, err := keys.Sample(testContext(t))
	require.NoError(t, err)
	require.ElementsMatch(t, blocks("m", 10), got.Keys)
	require.True(t, got.Complete)
	_, err = testBackend(t, Config{URL: "redis://reader:secret@" + s.Addr}).Sample(testContext(t))
	require.ErrorContains(t, err, "NOPERM")
	_, err = testBackend(t, Config{URL: "redis://scanner:secret@" + s.Addr}).Sample(testContext(t))
	require.NoError(t, err)

	require.NoError(t, keys.Store(testContext(t), blocks("m", 8000)))
	got, err = keys.Sample(testContext(t))
	require.NoError(t, err)
	require.False(t, got.Complete)
	require.GreaterOrEqual(t, len(got.Keys), maxSampleKeys)
	require.Less(t, len(got.Keys), 8000)
}

// TestWrongConnections has a case for each way to configure the connection wrongly.
func TestWrongConnections(t *testing.T) {
	plain, secret, c := storetest.StartRedis(t), storetest.StartRedis(t, "--requirepass", "right"), sharedCluster(t)
	secure, _, _ := storetest.StartTLSRedis(t)
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	closing, echo, mute := listen(t, func(net.Conn) {}), listen(t, func(c net.Conn) {
		buffer := make([]byte, 1000)
		n, _ := c.Read(buffer)
		_, _ = c.Write(buffer[:n])
	}), listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	alert := listen(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1000))
		_, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 70}) // protocol_version
	})
	full := storetest.StartRedis(t, "--maxclients", "1")
	require.Eventually(t, func() bool { // another one may not be gone yet
		one, err := net.Dial("tcp", full.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = one.Close() })
		reply := make([]byte, 1)
		_, _ = fmt.Fprint(one, "PING\r\n")
		_, err = one.Read(reply)
		return err == nil && reply[0] == '+'
	}, testTimeout, 5*time.Millisecond)
	for name, tt := range map[string]struct {
		url, want string
		is        error
	}{
		"too many clients":         {"redis://" + full.Addr, "refuses new connections: ERR max number of clients reached; raise its maxclients, or lower pool_size", backend.ErrUnavailable},
		"password missing":         {"redis://" + secret.Addr, "wants a password: redis://:PASSWORD@host or redis://USER:PASSWORD@host", backend.ErrMismatch},
		"password wrong":           {"redis://:wr0ngSecret@" + secret.Addr, "refuses this user or password", backend.ErrMismatch},
		"user unknown":             {"redis://nobody:wr0ngSecret@" + secret.Addr, "refuses this user or password", backend.ErrMismatch},
		"TLS against plain":        {"rediss://" + plain.Addr, "does not answer in TLS", backend.ErrUnavailable},
		"plain against TLS":        {"redis://:wr0ngSecret@" + secure.Addr, "rediss://", backend.ErrUnavailable},
		"cluster URL, single node": {"redis-cluster://" + plain.Addr, "not part of a cluster: use redis:// instead of redis-cluster://", backend.ErrMismatch},
		"single URL, cluster node": {"redis://" + c.Nodes[0].Addr, "node of a cluster: use redis-cluster:// instead of redis://", backend.ErrMismatch},
		"a TLS alert":              {"redis://:wr0ngSecret@" + alert, "speaks TLS", backend.ErrUnavailable},
		"a web server":             {"redis://:wr0ngSecret@" + web.Listener.Addr().String(), `not a Redis: it answers "HTTP/1.1`, backend.ErrReply},
		"a cluster of web servers": {"redis-cluster://" + web.Listener.Addr().String(), `not a Redis: it answers "HTTP/1.1`, backend.ErrReply},
		"one that closes":          {"redis://" + closing, "is it a proxy that does not know HELLO", backend.ErrUnavailable},
		"one that echoes":          {"redis://:wr0ngSecret@" + echo, "not a Redis", backend.ErrReply},
		"one that says nothing":    {"redis://:wr0ngSecret@" + mute, mute + ": no answer within ", context.DeadlineExceeded},
		"no server at that port":   {"redis://:wr0ngSecret@" + storetest.FreeAddr(t), "connection refused", backend.ErrUnavailable},
		"no server, cluster":       {"redis-cluster://" + storetest.FreeAddr(t), "connection refused", backend.ErrUnavailable},
		"no such socket":           {"unix:///nowhere/s", "no such file", backend.ErrUnavailable},
		"no such database":         {"redis://" + plain.Addr + "/99", "has no such database", backend.ErrMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := testTimeout
			if tt.is == context.DeadlineExceeded {
				timeout = 600 * time.Millisecond
			}
			b := testBackend(t, Config{URL: tt.url, DialTimeout: timeout / 2})
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			_, err := b.Exists(ctx, backend.KeyList(blocks("m", 600)), false)
			cancel()
			require.Error(t, err)
			t.Log(err)
			require.ErrorContains(t, err, tt.want)
			require.ErrorIs(t, err, tt.is)
			require.NotContains(t, err.Error(), "\n")
			require.NotContains(t, fmt.Sprintf("%+v %#v %q", err, err, b.String()), "wr0ngSecret")
		})
	}
}

func TestReplica(t *testing.T) {
	primary := storetest.StartRedis(t)
	replica := storetest.StartRedis(t, "--replicaof", "127.0.0.1 "+primary.Port(), "--replica-serve-stale-data", "yes")
	b := testBackend(t, Config{URL: "redis://" + replica.Addr})
	require.Eventually(t, func() bool {
		return errors.Is(b.Store(testContext(t), blocks("m", 1)), backend.ErrReadOnly)
	}, testTimeout, 5*time.Millisecond)
}

// listen serves each connection with script and closes it.
func listen(t *testing.T, script func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go serveListener(l, script)
	return l.Addr().String()
}

// serveListener serves each connection of l with script and closes it.
func serveListener(l net.Listener, script func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			script(conn)
		}()
	}
}

func TestConfig(t *testing.T) {
	const url = "redis://localhost"
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for want, cfg := range map[string]Config{
		"must begin with":             {URL: "http://localhost", KeyPrefix: "m"},
		"cannot be read":              {URL: "redis:localhost", KeyPrefix: "m"},
		"names no host":               {URL: "redis://", KeyPrefix: "m"},
		"path of a socket":            {URL: "unix://", KeyPrefix: "m"},
		"names a user and no":         {URL: "redis://me@localhost", KeyPrefix: "m"},
		"database that is not":        {URL: url + "/x", KeyPrefix: "m"},
		"one each of":                 {URL: url + "?pool_size=3", KeyPrefix: "m"},
		"not host:port":               {URL: "redis-cluster://h?addr=", KeyPrefix: "m"},
		"which only rediss://":        {URL: url + "?ca=/x", KeyPrefix: "m"},
		"no such file":                {URL: "rediss://h?ca=/nowhere", KeyPrefix: "m"},
		"cert and key":                {URL: "rediss://h?cert=/nowhere", KeyPrefix: "m"},
		"neither true nor false":      {URL: "rediss://h?skip_verify=maybe", KeyPrefix: "m"},
		"no database but 0":           {URL: "redis-cluster://h/1", KeyPrefix: "m"},
		"addr is for a cluster":       {URL: url + "?addr=h", KeyPrefix: "m"},
		"no KeyPrefix":                {URL: url},
		"a time to live of":           {URL: url, TTL: time.Microsecond, KeyPrefix: "m"},
		"pool_size: -1 is negative":   {URL: url, PoolSize: -1, KeyPrefix: "m"},
		"holds no certificate in PE":  {URL: "rediss://h?ca=" + empty, KeyPrefix: "m"},
		"ca: /dev/null is not a reg":  {URL: "rediss://h?ca=" + os.DevNull, KeyPrefix: "m"},
		"and key: /dev/null is not a": {URL: "rediss://h?key=" + os.DevNull + "&cert=" + empty, KeyPrefix: "m"},
	} {
		_, err := New(cfg)
		require.ErrorIs(t, err, fielderror.ErrConfig)
		require.ErrorContains(t, err, want)
	}
	for url, want := range map[string]string{
		"redis://localhost": "localhost:6379",
		"valkey://h:1":      "h:1",
		"redis://h:/3":      "h:6379",
		"redis://[::1]":     "[::1]:6379",
		"redis://[::1]:5/2": "[::1]:5",
		"redis-cluster://u:p@a?addr=b:2&addr=%5B::1%5D": "a:6379,b:2,[::1]:6379",
		"unix:///x/y?db=1": "/x/y",
	} {
		b := testBackend(t, Config{URL: url})
		require.Equal(t, "redis at "+want, b.String())
		require.Equal(t, "redis", b.Name())
	}
}

func TestPoolPrefix(t *testing.T) {
	for _, pool := range []coordinator.Pool{
		{ModelName: "org/m", HashBlockSize: 16}, {ModelName: "a@tp_rank:1", CachePrefix: "p@tp_rank:x", HashBlockSize: 16},
	} {
		coord, err := coordinator.New(pool)
		require.NoError(t, err)
		prefix := PoolPrefix(coord)
		b := testBackend(t, Config{URL: "redis://localhost", KeyPrefix: prefix})
		require.True(t, b.isPoolKey(coord.KeyPrefix(0, coord.Ranks(0)[0])+"0102"), prefix)
		require.False(t, strings.HasSuffix(prefix, "@tp_rank:0"))
	}
}

// TestNoSecretsInURLErrors puts a password with unencoded characters everywhere.
func TestNoSecretsInURLErrors(t *testing.T) {
	for _, special := range []string{"/", "?", "#", "@", ":", "%", " ", "&", "=", "[", "\\", "\x7f", "%zz"} {
		for _, password := range []string{"s3cret" + special + "s3cret", "1" + special + "s3cret", special + "s3cret"} {
			for _, scheme := range []string{"redis://", "rediss://", "redis-cluster://", "unix://", "http://", ""} {
				for _, user := range []string{"", "s3cret"} {
					cfg := Config{URL: scheme + user + ":" + password + "@h/0", KeyPrefix: "m"}
					b, err := New(cfg)
					var log bytes.Buffer
					slog.New(slog.NewJSONHandler(&log, nil)).Info("", "cfg", cfg)
					slog.New(slog.NewTextHandler(&log, nil)).Info("", "cfg", cfg)
					fmt.Fprintf(&log, "%v %+v %#v %s", cfg, cfg, cfg, cfg)
					if err != nil {
						fmt.Fprint(&log, err)
					} else {
						fmt.Fprint(&log, b)
						require.NoError(t, b.Close())
					}
					if b == nil || !strings.Contains(b.endpoint.String(), "s3cret") { // a host with that name cannot be distinguished
						require.NotContains(t, log.String(), "s3cret", "%q", cfg.URL)
					}
				}
			}
		}
	}
}

// TestNewDoesNotWait creates backends of servers that do not answer.
func TestNewDoesNotWait(t *testing.T) {
	numQueries, resolver := atomic.Int64{}, net.DefaultResolver
	defer func() { net.DefaultResolver = resolver }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		numQueries.Add(1)
		return nil, errors.New("no DNS in this test")
	}}
	start := time.Now()
	b := testBackend(t, Config{URL: "redis-cluster://192.0.2.1"})
	for i := range 100 {
		testBackend(t, Config{URL: fmt.Sprintf("redis://no%d.invalid", i)})
	}
	require.Less(t, time.Since(start), testTimeout/2)
	require.Zero(t, numQueries.Load(), "the DNS is not asked either")
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	_, err := b.Exists(testContext(t), backend.KeyList(blocks("m", 1)), false)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "closed")
}

// TestContext stops a server and checks that calls end with their contexts. A call that writes heeds the deadline alone:
// until the driver has returned it may take effect.
func TestContext(t *testing.T) {
	s := storetest.StartRedis(t)
	keys := blocks("m", 5000)
	for name, connected := range map[string]bool{"connected": true, "not yet": false} {
		t.Run(name, func(t *testing.T) {
			b := testBackend(t, Config{URL: "redis://" + s.Addr})
			if connected {
				require.NoError(t, b.Store(testContext(t), keys))
			}
			require.NoError(t, syscall.Kill(s.PID, syscall.SIGSTOP))
			calls := map[string]func(ctx context.Context) error{
				"exists": func(ctx context.Context) error { _, err := b.Exists(ctx, backend.KeyList(keys), false); return err },
				"store":  func(ctx context.Context) error { return b.Store(ctx, keys) },
				"reset":  b.Reset,
				"info":   func(ctx context.Context) error { _, err := b.Info(ctx); return err },
			}
			for what, call := range calls {
				start := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
				err := call(ctx)
				cancel()
				require.ErrorIs(t, err, context.DeadlineExceeded, what)
				require.ErrorIs(t, err, backend.ErrUnavailable, what)
				if what == "store" || what == "reset" {
					continue
				}
				ctx, cancel = context.WithCancel(context.Background())
				time.AfterFunc(30*time.Millisecond, cancel)
				err = call(ctx)
				require.ErrorIs(t, err, context.Canceled, what)
				require.ErrorContains(t, err, s.Addr+": the call was given up", what)
				require.Less(t, time.Since(start), testTimeout/2, what)
				require.ErrorIs(t, call(ctx), context.Canceled, what)
			}
			require.NoError(t, syscall.Kill(s.PID, syscall.SIGCONT))
			_, err := b.Exists(testContext(t), backend.KeyList(keys), false)
			require.NoError(t, err)
		})
	}
}

// TestFewConnections lets many callers share two connections.
func TestFewConnections(t *testing.T) {
	s := storetest.StartRedis(t)
	b := testBackend(t, Config{URL: "redis://" + s.Addr, PoolSize: 2})
	keys := blocks("m", 600)
	require.NoError(t, b.Store(testContext(t), keys[:300]))
	var callers sync.WaitGroup
	for range 30 {
		callers.Go(func() {
			for range 5 {
				answers, err := b.Exists(testContext(t), backend.KeyList(keys), false)
				if err != nil || answers[299] != 1 || answers[300] != 0 {
					t.Error("wrong", err)
				}
			}
		})
	}
	callers.Wait()
	clients, err := s.Client(t).ClientList(testContext(t)).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(clients, "\n"), 3, "two and the one that asks")
}

// TestPartialFailure kills one node of a cluster. Its keys are not reported as absent: Exists
// returns an error.
func TestPartialFailure(t *testing.T) {
	c := sharedCluster(t)
	for _, n := range c.Nodes {
		require.NoError(t, n.Client(t).ConfigSet(testContext(t), "cluster-require-full-coverage", "no").Err())
	}
	b := testBackend(t, Config{URL: c.URL()})
	keys := blocks("m", 2000)
	require.NoError(t, b.Store(testContext(t), keys))
	c.Nodes[2].Kill()
	for range 20 {
		answers, err := b.Exists(testContext(t), backend.KeyList(keys), false)
		require.Error(t, err)
		require.Nil(t, answers)
		require.ErrorIs(t, err, backend.ErrUnavailable)
	}
	require.Error(t, b.Reset(testContext(t)))
	var alive []string
	for _, key := range keys {
		if slot := c.Nodes[0].Client(t).ClusterKeySlot(testContext(t), key).Val(); slot < 2*5461 {
			alive = append(alive, key)
		}
		if len(alive) == 20 {
			break
		}
	}
	_, err := b.Exists(testContext(t), backend.KeyList(alive), false)
	require.NoError(t, err, "the others serve")
	c.Nodes[2].Stop()
	c.Nodes[2].Start(t)
	c.WaitReady(t)
	require.Eventually(t, func() bool { _, err := b.Exists(testContext(t), backend.KeyList(keys), false); return err == nil }, testTimeout, 20*time.Millisecond)
	for _, n := range c.Nodes {
		require.NoError(t, n.Client(t).ConfigSet(testContext(t), "cluster-require-full-coverage", "yes").Err())
	}
}

// TestPanic has the driver panic. That fails the call, and ends no program.
func TestPanic(t *testing.T) {
	b := testBackend(t, Config{URL: "redis://localhost"})
	_, err := b.do(testContext(t), false, func(context.Context) ([]int, error) { panic("odd answer") })
	require.ErrorContains(t, err, "a fault of hitline, please report it: odd answer")
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorIs(t, err, requesterror.ErrFault)
}

func TestRefusals(t *testing.T) {
	b := testBackend(t, Config{URL: "redis://localhost"})
	for reply, want := range map[string]error{
		"LOADING Redis is loading the dataset in memory":                                   backend.ErrUnavailable,
		"CLUSTERDOWN Hash slot not served":                                                 backend.ErrUnavailable,
		"ERR unknown command 'SMISMEMBER'":                                                 backend.ErrUnavailable,
		"ERR AUTH <password> called without any password configured for the default user.": backend.ErrUnavailable,
		"OOM command not allowed when used memory > 'maxmemory'.":                          backend.ErrUnavailable,
		"ERR max number of clients reached":                                                backend.ErrUnavailable,
		"ERR syntax error":                                                                 backend.ErrReply,
	} {
		err := b.explain(context.Background(), time.Now(), replyError{reply}, false)
		require.ErrorIs(t, err, want)
		require.NotErrorIs(t, err, backend.ErrReadOnly)
	}
	for _, reply := range []string{
		"OOM command not allowed when used memory > 'maxmemory'.", "MISCONF Redis is configured to save RDB snapshots",
		"NOREPLICAS Not enough good replicas to write.",
	} {
		require.ErrorIs(t, b.explain(context.Background(), time.Now(), replyError{reply}, true), backend.ErrReadOnly, "it says nothing about lookups")
	}
	require.ErrorIs(t, b.explain(context.Background(), time.Now(), errors.New("odd"), false), backend.ErrUnavailable)
	secret := testBackend(t, Config{URL: "redis://:s3cret@localhost"})
	for _, err := range []error{errors.New("odd s3cret"), replyError{"ERR what is s3cret"}} {
		require.NotContains(t, secret.explain(context.Background(), time.Now(), err, false).Error(), "s3cret")
	}
}

// replyError is an error reply.
type replyError struct{ text string }

func (w replyError) Error() string { return w.text }
func (w replyError) RedisError()   {}
