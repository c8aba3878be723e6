package compare

import (
	"context"
	"fmt"
	"github.com/hitline/hitline/bench/wire"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/bench/process"
)

// redisPart is how many keys are stored with one command.
const redisPart = 1000

func (s *servers) startRedis(ctx context.Context) ([]*rival, error) {
	path, err := findProgram(s.o.RedisServer, "redis-server", "apt-get install redis-server")
	if err != nil {
		return nil, err
	}
	return s.startRedisLike(ctx, path, RedisSMIsMember, RedisExists)
}

func (s *servers) startValkey(ctx context.Context) ([]*rival, error) {
	path, err := findProgram(s.o.ValkeyServer, "valkey-server", "apt-get install valkey-server")
	if err != nil {
		return nil, err
	}
	return s.startRedisLike(ctx, path, ValkeySMIs, ValkeyExists)
}

// redisVersion finds the version in "Redis server v=7.0.15 sha=00000000:0 …".
var redisVersion = regexp.MustCompile(`^(\S+) server v=(\S+)`)

// startRedisLike starts a server, Redis or Valkey, that keeps nothing on disk.
func (s *servers) startRedisLike(ctx context.Context, path, setRow, keysRow string) ([]*rival, error) {
	version, err := s.versionLine(ctx, path, "--version")
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", path, err)
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
	r := redisRivals{addr: addr, version: version, timeout: s.o.Timeout}
	set := &data{fill: func(ctx context.Context, w *chainSet) error { return r.fill(ctx, w, storeMembers) }}
	keys := &data{fill: func(ctx context.Context, w *chainSet) error { return r.fill(ctx, w, storeKeys) }}
	return append(
		r.both(setRow, "one set; SMISMEMBER of all hashes", set, prepareMembers, newSetClient),
		r.both(keysRow, "a key a hash; EXISTS of each, in one pipeline", keys, prepareExists, newKeysClient)...,
	), nil
}

// redisRivals makes the rivals of one server.
type redisRivals struct {
	addr    string
	version string
	timeout time.Duration
}

// both returns a rival for each way.
func (r redisRivals) both(name, note string, stored *data, prepared func(*respClient), usual func(redisClient) single) []*rival {
	connectPrepared := func(ctx context.Context, w *chainSet) (client, error) {
		conn, err := dialRaw(ctx, r.addr, "", r.timeout)
		if err != nil {
			return nil, err
		}
		return oneByOne{&respClient{rawConn: conn, load: w, setForm: prepared}}, nil
	}
	connectUsual := func(_ context.Context, w *chainSet) (client, error) {
		return oneByOne{usual(redisClient{load: w, client: r.dial()})}, nil
	}
	return []*rival{
		{name: name, way: Prepared, client: rawSocket, version: r.version, note: note, data: stored, connect: connectPrepared},
		{name: name, way: Usual, client: "go-redis " + goredis.Version(), version: r.version, note: note, data: stored, connect: connectUsual},
	}
}

// dial returns a client of go-redis with one connection.
func (r redisRivals) dial() *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr: r.addr, Protocol: 2, DisableIdentity: true, PoolSize: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: r.timeout, ReadTimeout: r.timeout, WriteTimeout: r.timeout,
	})
}

// fill stores all hashes, so many with a command.
func (r redisRivals) fill(ctx context.Context, w *chainSet, store func(ctx context.Context, c *goredis.Client, hashes []string) error) error {
	c := r.dial()
	defer func() { _ = c.Close() }() // nothing is lost with it
	for i := range w.len() {
		hashes := w.strings(i)
		for len(hashes) > 0 {
			n := min(redisPart, len(hashes))
			if err := store(ctx, c, hashes[:n]); err != nil {
				return wire.Lost(err)
			}
			hashes = hashes[n:]
		}
	}
	return nil
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

// respClient sends prepared bytes of RESP, and finds the hit in the integers of the
// reply.
type respClient struct {
	rawConn
	load     *chainSet
	setForm  func(*respClient) // fills in what follows, but for reply
	requests *requestSet
	head     []byte // of a reply, before the integers
	prefix   []byte // with which a reply begins
	reply    []byte // room for one and a little
}

// prepareMembers sets the form with one SMISMEMBER a request.
func prepareMembers(c *respClient) {
	template, first, stride := wire.MemberTemplate(c.load.hashes)
	c.requests = c.load.prepared("SMISMEMBER", template, first, stride, plainHash)
	c.head = wire.MemberHead(c.load.hashes)
	c.prefix = c.head
}

// prepareExists sets the form with an EXISTS for each hash.
func prepareExists(c *respClient) {
	template, first, stride := wire.ExistsTemplate(c.load.hashes)
	c.requests = c.load.prepared("EXISTS", template, first, stride, plainHash)
	c.prefix = []byte(":")
}

func (c *respClient) prepare() error {
	c.setForm(c)
	c.reply = make([]byte, len(c.head)+wire.IntegerLen*c.load.hashes+64)
	return nil
}

func (c *respClient) askOne(_ context.Context, r request) (answer, error) {
	bytes := c.requests.put(r, c.load.hashes)
	start := time.Now()
	_, err := c.Write(bytes)
	var reply []byte
	if err == nil {
		reply, err = c.ReadReply(c.reply, len(c.head)+wire.IntegerLen*c.load.hashes, c.prefix)
	}
	blocks := 0
	if err == nil {
		blocks, err = wire.LeadingOnes(reply[len(c.head):])
	}
	took := time.Since(start)
	if err != nil {
		return answer{}, err
	}
	return answer{c.load.hitOf(blocks), took}, nil
}

// redisClient asks by go-redis.
type redisClient struct {
	client *goredis.Client
	load   *chainSet
}

func (c *redisClient) close() { _ = c.client.Close() } // nothing is lost with it

// hit returns the tokens of the leading blocks that are there.
func (c *redisClient) hit(there func(block int) bool) uint32 {
	block := 0
	for block < c.load.hashes && there(block) {
		block++
	}
	return c.load.hitOf(block)
}

// setClient asks for members of one set.
type setClient struct {
	redisClient
	members [][]any // of each chain
}

func newSetClient(c redisClient) single { return &setClient{redisClient: c} }

func (c *setClient) prepare() error {
	c.members = c.load.asMembers()
	return nil
}

func (c *setClient) askOne(ctx context.Context, r request) (answer, error) {
	c.load.put(r) // the members are slices of the chains
	start := time.Now()
	there, err := c.client.SMIsMember(ctx, wire.RedisSet, c.members[r.chain]...).Result()
	if err == nil && len(there) != c.load.hashes {
		err = fmt.Errorf("%w: %d members of %d", measure.ErrAnswer, len(there), c.load.hashes)
	}
	if err != nil {
		return answer{}, wire.Lost(err)
	}
	hit := c.hit(func(block int) bool { return there[block] })
	return answer{hit, time.Since(start)}, nil
}

// keysClient asks for keys.
type keysClient struct {
	redisClient
	keys [][]string // of each chain
}

func newKeysClient(c redisClient) single { return &keysClient{redisClient: c} }

func (c *keysClient) prepare() error {
	c.keys = c.load.asKeys()
	return nil
}

func (c *keysClient) askOne(ctx context.Context, r request) (answer, error) {
	keys := c.keys[r.chain]
	if r.block < len(keys) {
		keys[r.block] = string(r.absent[:])
	}
	start := time.Now()
	pipeline := c.client.Pipeline()
	answers := make([]*goredis.IntCmd, len(keys))
	for block, key := range keys {
		answers[block] = pipeline.Exists(ctx, key)
	}
	if _, err := pipeline.Exec(ctx); err != nil {
		return answer{}, wire.Lost(err)
	}
	hit := c.hit(func(block int) bool { return answers[block].Val() == 1 })
	return answer{hit, time.Since(start)}, nil
}
