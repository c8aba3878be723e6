//go:build linux

package compare

import (
	"context"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
)

// redisPart is how many keys are stored with one command.
const redisPart = 1000

// redisVersion finds the version in "Redis server v=7.0.15 sha=00000000:0 …".
var redisVersion = regexp.MustCompile(`^(\S+) server v=(\S+)`)

// startRedis starts a Redis that keeps nothing on disk.
func (s *servers) startRedis(ctx context.Context) ([]*rival, error) {
	path, err := process.FindProgram("", "redis-server", "apt-get install redis-server")
	if err != nil {
		return nil, err
	}
	version, err := s.versionLine(ctx, path, "--version")
	if err != nil {
		return nil, err
	}
	if found := redisVersion.FindStringSubmatch(version); found != nil {
		version = found[1] + " " + found[2]
	}
	addr, err := process.FreeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--daemonize", "no",
		"--logfile", "", "--dir", os.TempDir())
	_, err = s.launch(ctx, cmd, func(line []byte) (string, bool) {
		return addr, strings.Contains(string(line), "Ready to accept connections")
	})
	if err != nil {
		return nil, err
	}
	r := redisServer{addr: addr, timeout: s.o.Timeout, load: s.load}
	return []*rival{
		{version: version, fill: r.storedBy(storeMembers), connect: r.connectMembers},
		{version: version, fill: r.storedBy(storeKeys), connect: r.connectExists},
	}, nil
}

// redisServer makes clients of one server.
type redisServer struct {
	addr    string // host:port
	timeout time.Duration
	load    *lookups
}

// storedBy returns how all hashes are stored, several with a command.
func (r redisServer) storedBy(store func(ctx context.Context, c *goredis.Client, hashes []string) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		c := goredis.NewClient(&goredis.Options{
			Addr: r.addr, Protocol: 2, DisableIdentity: true, PoolSize: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
			DialTimeout: r.timeout, ReadTimeout: r.timeout, WriteTimeout: r.timeout,
		})
		defer func() { _ = c.Close() }() // nothing is lost with it
		for i := range r.load.Len() {
			for part := range slices.Chunk(r.load.strings(i), redisPart) {
				if err := store(ctx, c, part); err != nil {
					return wire.Lost(err)
				}
			}
		}
		return nil
	}
}

func storeMembers(ctx context.Context, c *goredis.Client, hashes []string) error {
	members := make([]any, len(hashes))
	for i, h := range hashes {
		members[i] = h
	}
	return c.SAdd(ctx, redisSet, members...).Err()
}

func storeKeys(ctx context.Context, c *goredis.Client, hashes []string) error {
	pairs := make([]any, 0, 2*len(hashes))
	for _, h := range hashes {
		pairs = append(pairs, h, "1")
	}
	return c.MSet(ctx, pairs...).Err()
}

// connectMembers returns a client that sends one SMISMEMBER a request.
func (r redisServer) connectMembers(ctx context.Context) (*client, error) {
	template, first, stride := memberTemplate(r.load.Hashes())
	head := memberHead(r.load.Hashes())
	return r.connect(ctx, r.load.requests(template, first, stride), head, head)
}

// connectExists returns a client that sends an EXISTS for each hash.
func (r redisServer) connectExists(ctx context.Context) (*client, error) {
	template, first, stride := existsTemplate(r.load.Hashes())
	return r.connect(ctx, r.load.requests(template, first, stride), nil, []byte(":"))
}

// connect returns a client that sends requests and finds the hit in the integers of a reply,
// which come after head. A reply begins with prefix.
func (r redisServer) connect(ctx context.Context, requests *requestSet, head, prefix []byte) (*client, error) {
	conn, err := dial(ctx, wire.Server{Address: "tcp://" + r.addr, Timeout: r.timeout})
	if err != nil {
		return nil, err
	}
	return &client{
		Conn: conn, prefix: prefix, size: len(head) + integerLen*r.load.Hashes(), depth: 1,
		request: func(l workload.Lookup) (first, second []byte) { return requests.put(l), nil },
		hit: func(reply []byte) (uint32, error) {
			blocks, err := leadingOnes(reply[len(head):])
			return r.load.Tokens(blocks), err
		},
	}, nil
}
