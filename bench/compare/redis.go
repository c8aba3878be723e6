package compare

import (
	"context"
	"fmt"
	"github.com/hitline/hitline/bench/wire"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/bench/process"
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
	p, err := s.launch(ctx, cmd, func(line []byte) (string, bool) {
		return addr, strings.Contains(string(line), "Ready to accept connections")
	})
	if err != nil {
		return nil, err
	}
	r := redisServer{addr: "tcp://" + addr, timeout: s.o.Timeout}
	set := rival{name: setRival, version: version, server: p, data: r.storedBy(storeMembers)}
	keys := rival{name: keysRival, version: version, server: p, data: r.storedBy(storeKeys)}
	client := rivalKinds[setRival].client + " " + goredis.Version()
	return []*rival{
		set.in(Prepared, rawSocket, r.prepared(prepareMembers)), set.in(Usual, client, r.usual(newSetClient)),
		keys.in(Prepared, rawSocket, r.prepared(prepareExists)), keys.in(Usual, client, r.usual(newKeysClient)),
	}, nil
}

// redisServer makes clients of one server.
type redisServer struct {
	addr    string // tcp://host:port
	timeout time.Duration
}

// prepared returns how it is asked by bytes in a form.
func (r redisServer) prepared(form func(*respClient)) func(context.Context, *lookups) (client, error) {
	return func(ctx context.Context, w *lookups) (client, error) {
		conn, err := dialRaw(ctx, wire.Server{Address: r.addr, Timeout: r.timeout})
		return oneByOne{&respClient{rawConn: conn, load: w, setForm: form}}, err
	}
}

// usual returns how it is asked by go-redis.
func (r redisServer) usual(ask func(redisClient) single) func(context.Context, *lookups) (client, error) {
	return func(_ context.Context, w *lookups) (client, error) {
		return oneByOne{ask(redisClient{load: w, client: r.dial()})}, nil
	}
}

// dial returns a client of go-redis with one connection.
func (r redisServer) dial() *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr: strings.TrimPrefix(r.addr, "tcp://"), Protocol: 2, DisableIdentity: true, PoolSize: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: r.timeout, ReadTimeout: r.timeout, WriteTimeout: r.timeout,
	})
}

// storedBy returns how all hashes are stored, so many with a command.
func (r redisServer) storedBy(store func(ctx context.Context, c *goredis.Client, hashes []string) error) *data {
	return &data{fill: func(ctx context.Context, w *lookups) error {
		c := r.dial()
		defer func() { _ = c.Close() }() // nothing is lost with it
		for i := range w.Len() {
			for part := range slices.Chunk(w.strings(i), redisPart) {
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

// respClient sends prepared bytes of RESP, and finds the hit in the integers of the
// reply.
type respClient struct {
	rawConn
	load     *lookups
	setForm  func(*respClient) // fills in what follows, but for reply
	requests *requestSet
	head     []byte // of a reply, before the integers
	prefix   []byte // with which a reply begins
	reply    []byte // room for one and a little
}

// prepareMembers sets the form with one SMISMEMBER a request.
func prepareMembers(c *respClient) {
	template, first, stride := wire.MemberTemplate(c.load.Hashes())
	c.requests = c.load.prepared("SMISMEMBER", template, first, stride, plainHash)
	c.head = wire.MemberHead(c.load.Hashes())
	c.prefix = c.head
}

// prepareExists sets the form with an EXISTS for each hash.
func prepareExists(c *respClient) {
	template, first, stride := wire.ExistsTemplate(c.load.Hashes())
	c.requests = c.load.prepared("EXISTS", template, first, stride, plainHash)
	c.prefix = []byte(":")
}

func (c *respClient) prepare(context.Context) error {
	c.setForm(c)
	c.reply = make([]byte, len(c.head)+wire.IntegerLen*c.load.Hashes()+64)
	return nil
}

func (c *respClient) askOne(_ context.Context, l workload.Lookup) (answer, error) {
	bytes := c.requests.put(l)
	start := time.Now()
	_, err := c.Write(bytes)
	var reply []byte
	if err == nil {
		reply, err = c.ReadReply(c.reply, len(c.head)+wire.IntegerLen*c.load.Hashes(), c.prefix)
	}
	blocks := 0
	if err == nil {
		blocks, err = wire.LeadingOnes(reply[len(c.head):])
	}
	took := time.Since(start)
	if err != nil {
		return answer{}, err
	}
	return answer{c.load.Tokens(blocks), took}, nil
}

// redisClient asks by go-redis.
type redisClient struct {
	prepared
	client *goredis.Client
	load   *lookups
}

func (c *redisClient) close() { _ = c.client.Close() } // nothing is lost with it

// hit returns the tokens of the leading blocks that are there.
func (c *redisClient) hit(there func(block int) bool) uint32 {
	block := 0
	for block < c.load.Hashes() && there(block) {
		block++
	}
	return c.load.Tokens(block)
}

// setClient asks for members of one set.
type setClient struct{ redisClient }

func newSetClient(c redisClient) single { return &setClient{c} }

func (c *setClient) askOne(ctx context.Context, l workload.Lookup) (answer, error) {
	c.load.Put(l) // the members are slices of the chains
	members := c.load.asMembers()[l.Chain]
	start := time.Now()
	there, err := c.client.SMIsMember(ctx, wire.RedisSet, members...).Result()
	if err == nil && len(there) != c.load.Hashes() {
		err = fmt.Errorf("%w: %d members of %d", measure.ErrAnswer, len(there), c.load.Hashes())
	}
	if err != nil {
		return answer{}, wire.Lost(err)
	}
	hit := c.hit(func(block int) bool { return there[block] })
	return answer{hit, time.Since(start)}, nil
}

// keysClient asks for keys.
type keysClient struct{ redisClient }

func newKeysClient(c redisClient) single { return &keysClient{c} }

func (c *keysClient) askOne(ctx context.Context, l workload.Lookup) (answer, error) {
	keys := c.load.asKeys()[l.Chain]
	if !c.load.Hits(l) {
		keys[l.Stored] = string(l.Absent[:])
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
