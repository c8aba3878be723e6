package compare

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/bench/internal/process"
)

const (
	redisSet  = "blocks" // the set of all hashes
	redisPart = 1000     // keys stored with one command
)

func (m *meter) startRedis(ctx context.Context) ([]*rival, error) {
	path, err := find(m.o.RedisServer, "redis-server", "apt-get install redis-server")
	if err != nil {
		return nil, err
	}
	return m.startRedisLike(ctx, path, RedisSMIsMember, RedisExists)
}

func (m *meter) startValkey(ctx context.Context) ([]*rival, error) {
	path, err := find(m.o.ValkeyServer, "valkey-server", "apt-get install valkey-server")
	if err != nil {
		return nil, err
	}
	return m.startRedisLike(ctx, path, ValkeySMIs, ValkeyExists)
}

// redisVersion finds the version in "Redis server v=7.0.15 sha=00000000:0 …".
var redisVersion = regexp.MustCompile(`^(\S+) server v=(\S+)`)

// startRedisLike starts a server, Redis or Valkey, that keeps nothing on disk.
func (m *meter) startRedisLike(ctx context.Context, path, setRow, keysRow string) ([]*rival, error) {
	version, err := m.says(ctx, path, "--version")
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", path, err)
	}
	if found := redisVersion.FindStringSubmatch(version); found != nil {
		version = found[1] + " " + found[2]
	}
	version += ", go-redis " + goredis.Version()
	addr, err := process.FreeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--daemonize", "no",
		"--logfile", "", "--dir", os.TempDir())
	_, err = m.launch(ctx, cmd, func(line []byte) (string, bool) {
		return addr, strings.Contains(string(line), "Ready to accept connections")
	})
	if err != nil {
		return nil, err
	}
	dial := func(w *workload) redisAsker { return dialRedis(addr, w, m.o.Timeout) }
	return []*rival{
		{name: setRow, version: version, note: "one set; SMISMEMBER of all hashes", open: func(ctx context.Context, w *workload) (asker, error) {
			a := &setAsker{redisAsker: dial(w)}
			return a, a.filled(ctx, a.fill)
		}},
		{name: keysRow, version: version, note: "a key a hash; EXISTS of each, in one pipeline", open: func(ctx context.Context, w *workload) (asker, error) {
			a := &keysAsker{redisAsker: dial(w)}
			return a, a.filled(ctx, a.fill)
		}},
	}, nil
}

// redisAsker is a client of Redis or Valkey, with one connection.
type redisAsker struct {
	client *goredis.Client
	load   *workload
}

func dialRedis(addr string, w *workload, timeout time.Duration) redisAsker {
	return redisAsker{load: w, client: goredis.NewClient(&goredis.Options{
		Addr: addr, Protocol: 2, DisableIdentity: true, PoolSize: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
	})}
}

func (a *redisAsker) close() { _ = a.client.Close() } // nothing is lost with it

// filled stores all hashes, so many at a time, and closes the client if that fails.
func (a *redisAsker) filled(ctx context.Context, store func(ctx context.Context, hashes []string) error) error {
	for i := range a.load.len() {
		hashes := a.load.strings(i)
		for len(hashes) > 0 {
			n := min(redisPart, len(hashes))
			if err := store(ctx, hashes[:n]); err != nil {
				a.close()
				return fmt.Errorf("%w: storing: %w", ErrLost, err)
			}
			hashes = hashes[n:]
		}
	}
	return nil
}

// hit returns the tokens of the leading blocks that are there.
func (a *redisAsker) hit(there func(block int) bool) uint32 {
	block := 0
	for block < a.load.hashes && there(block) {
		block++
	}
	return uint32(block) * (a.load.tokens / uint32(a.load.hashes))
}

// setAsker asks for members of one set.
type setAsker struct {
	redisAsker
	members [][]any // of each chain
}

func (a *setAsker) fill(ctx context.Context, hashes []string) error {
	members := make([]any, len(hashes))
	for i, h := range hashes {
		members[i] = h
	}
	return a.client.SAdd(ctx, redisSet, members...).Err()
}

func (a *setAsker) prepare() error {
	for i := range a.load.len() {
		members := make([]any, a.load.hashes)
		for block := range members {
			members[block] = a.load.hash(i, block)
		}
		a.members = append(a.members, members)
	}
	return nil
}

func (a *setAsker) ask(ctx context.Context, chain int) (uint32, time.Duration, error) {
	start := time.Now()
	there, err := a.client.SMIsMember(ctx, redisSet, a.members[chain]...).Result()
	if err == nil && len(there) != a.load.hashes {
		err = fmt.Errorf("%w: %d members of %d", ErrAnswer, len(there), a.load.hashes)
	}
	if err != nil {
		return 0, 0, lost(err)
	}
	hit := a.hit(func(block int) bool { return there[block] })
	return hit, time.Since(start), nil
}

// keysAsker asks for keys.
type keysAsker struct {
	redisAsker
	keys [][]string // of each chain
}

func (a *keysAsker) fill(ctx context.Context, hashes []string) error {
	pairs := make([]any, 0, 2*len(hashes))
	for _, h := range hashes {
		pairs = append(pairs, h, "1")
	}
	return a.client.MSet(ctx, pairs...).Err()
}

func (a *keysAsker) prepare() error {
	for i := range a.load.len() {
		a.keys = append(a.keys, a.load.strings(i))
	}
	return nil
}

func (a *keysAsker) ask(ctx context.Context, chain int) (uint32, time.Duration, error) {
	start := time.Now()
	pipeline := a.client.Pipeline()
	answers := make([]*goredis.IntCmd, a.load.hashes)
	for block, key := range a.keys[chain] {
		answers[block] = pipeline.Exists(ctx, key)
	}
	if _, err := pipeline.Exec(ctx); err != nil {
		return 0, 0, lost(err)
	}
	hit := a.hit(func(block int) bool { return answers[block].Val() == 1 })
	return hit, time.Since(start), nil
}
