package compare

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
)

// redisPart is how many keys are stored with one command.
const redisPart = 1000

// redisVersion finds the version in "Redis server v=7.0.15 sha=00000000:0 …".
var redisVersion = regexp.MustCompile(`^(\S+) server v=(\S+)`)

// startRedis starts a server, Redis or Valkey, that keeps nothing on disk.
func (s *servers) startRedis(ctx context.Context, named, program, setRival, keysRival string) ([]*rival, error) {
	path, err := process.FindProgram(named, program, "apt-get install "+program)
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
	p, err := s.launch(ctx, cmd, func(line []byte) (string, bool) {
		return addr, strings.Contains(string(line), "Ready to accept connections")
	})
	if err != nil {
		return nil, err
	}
	r := redisServer{addr: addr, timeout: s.o.Timeout, load: s.load}
	set := rival{name: setRival, version: version, server: p, data: r.storedBy(storeMembers)}
	keys := rival{name: keysRival, version: version, server: p, data: r.storedBy(storeKeys)}
	client := "go-redis " + goredis.Version()
	return []*rival{
		set.in(Prepared, rawSocket, r.connectMembers), set.in(Usual, client, r.usual(r.members)),
		keys.in(Prepared, rawSocket, r.connectExists), keys.in(Usual, client, r.usual(r.exists)),
	}, nil
}

// redisServer makes clients of one server.
type redisServer struct {
	addr    string // host:port
	timeout time.Duration
	load    *lookups
}

// dial returns a client of go-redis with one connection.
func (r redisServer) dial() *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr: r.addr, Protocol: 2, DisableIdentity: true, PoolSize: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: r.timeout, ReadTimeout: r.timeout, WriteTimeout: r.timeout,
	})
}

// storedBy returns how all hashes are stored, several with a command.
func (r redisServer) storedBy(store func(ctx context.Context, c *goredis.Client, hashes []string) error) *data {
	return &data{fill: func(ctx context.Context) error {
		c := r.dial()
		defer func() { _ = c.Close() }() // nothing is lost with it
		for i := range r.load.Len() {
			for part := range slices.Chunk(r.load.strings(i), redisPart) {
				if err := store(ctx, c, part); err != nil {
					return lost(err)
				}
			}
		}
		return nil
	}}
}

func storeMembers(ctx context.Context, c *goredis.Client, hashes []string) error {
	members := make([]any, len(hashes))
	for i, h := range hashes {
		members[i] = h
	}
	return c.SAdd(ctx, wire.RedisSet, members...).Err()
}

func storeKeys(ctx context.Context, c *goredis.Client, hashes []string) error {
	pairs := make([]any, 0, 2*len(hashes))
	for _, h := range hashes {
		pairs = append(pairs, h, "1")
	}
	return c.MSet(ctx, pairs...).Err()
}

// connectMembers returns a client that sends prepared bytes, with one SMISMEMBER a request.
func (r redisServer) connectMembers(ctx context.Context) (client, error) {
	template, first, stride := wire.MemberTemplate(r.load.Hashes())
	head := wire.MemberHead(r.load.Hashes())
	return r.prepared(ctx, r.load.requests(template, first, stride), head, head)
}

// connectExists returns a client that sends prepared bytes, with an EXISTS for each hash.
func (r redisServer) connectExists(ctx context.Context) (client, error) {
	template, first, stride := wire.ExistsTemplate(r.load.Hashes())
	return r.prepared(ctx, r.load.requests(template, first, stride), nil, []byte(":"))
}

// prepared returns a client that sends requests and finds the hit in the integers of a reply,
// which come after head. A reply begins with prefix.
func (r redisServer) prepared(ctx context.Context, requests *requestSet, head, prefix []byte) (client, error) {
	conn, err := dialRaw(ctx, wire.Server{Address: "tcp://" + r.addr, Timeout: r.timeout})
	if err != nil {
		return client{}, err
	}
	c := &rawClient{
		Conn: conn, prefix: prefix, size: len(head) + wire.IntegerLen*r.load.Hashes(),
		request: func(l workload.Lookup) (first, second []byte) { return requests.put(l), nil },
		hit: func(reply []byte) (uint32, error) {
			blocks, err := wire.LeadingOnes(reply[len(head):])
			return r.load.Tokens(blocks), err
		},
	}
	return c.client(1), nil
}

// usual returns how the server is asked by go-redis; form makes what a lookup calls.
func (r redisServer) usual(form func(c *goredis.Client) func(context.Context, workload.Lookup) (answer, error)) func(context.Context) (client, error) {
	return func(context.Context) (client, error) {
		c := r.dial()
		return client{ask: form(c), close: func() { _ = c.Close() }}, nil // nothing is lost with it
	}
}

// hit returns the tokens of the leading blocks that are there.
func (r redisServer) hit(there func(block int) bool) uint32 {
	block := 0
	for block < r.load.Hashes() && there(block) {
		block++
	}
	return r.load.Tokens(block)
}

// members asks for members of one set.
func (r redisServer) members(c *goredis.Client) func(context.Context, workload.Lookup) (answer, error) {
	all := r.load.members()
	return func(ctx context.Context, l workload.Lookup) (answer, error) {
		r.load.Put(l) // the members are slices of the chains
		start := time.Now()
		there, err := c.SMIsMember(ctx, wire.RedisSet, all[l.Chain]...).Result()
		if err == nil && len(there) != r.load.Hashes() {
			err = fmt.Errorf("%w: %d members of %d", measure.ErrAnswer, len(there), r.load.Hashes())
		}
		if err != nil {
			return answer{}, wire.Lost(err)
		}
		hit := r.hit(func(block int) bool { return there[block] })
		return answer{hit, time.Since(start)}, nil
	}
}

// exists asks for keys.
func (r redisServer) exists(c *goredis.Client) func(context.Context, workload.Lookup) (answer, error) {
	all := r.load.keys(r.load.strings)
	return func(ctx context.Context, l workload.Lookup) (answer, error) {
		keys := all[l.Chain]
		if !r.load.Hits(l) {
			keys[l.Stored] = string(l.Absent[:])
		}
		start := time.Now()
		pipeline := c.Pipeline()
		answers := make([]*goredis.IntCmd, len(keys))
		for block, key := range keys {
			answers[block] = pipeline.Exists(ctx, key)
		}
		if _, err := pipeline.Exec(ctx); err != nil {
			return answer{}, wire.Lost(err)
		}
		hit := r.hit(func(block int) bool { return answers[block].Val() == 1 })
		return answer{hit, time.Since(start)}, nil
	}
}
