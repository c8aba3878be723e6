package compare

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/rivals/python"
	"github.com/hitline/hitline/bench/wire"
)

// missing returns an error of a rival that is not on this machine, with what to do.
func missing(format string, args ...any) error {
	return fmt.Errorf("%w: %w", process.ErrMissing, fmt.Errorf(format, args...))
}

// rawSocket is the client of all that is asked in the prepared way.
const rawSocket = "raw socket"

// serverKind is a kind of server, and the rivals that are on it.
type serverKind struct {
	rivals []string
	start  func(s *servers, ctx context.Context) ([]*rival, error)
}

// serverKinds are all servers, in the order of the report.
var serverKinds = []serverKind{
	{[]string{Floor}, (*servers).startFloor},
	{[]string{Hitline, HitlineZMTP}, (*servers).startHitline},
	{[]string{GoNetMap}, (*servers).startMap},
	{[]string{GoZMQMap}, (*servers).startGoMap},
	{[]string{PythonBare}, func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startPython(ctx, PythonBare, "hashes")
	}},
	{[]string{Python}, func(s *servers, ctx context.Context) ([]*rival, error) { return s.startPython(ctx, Python, "strings") }},
	{[]string{RedisSMIsMember, RedisExists}, func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startRedis(ctx, s.o.RedisServer, "redis-server", RedisSMIsMember, RedisExists)
	}},
	{[]string{ValkeySMIs, ValkeyExists}, func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startRedis(ctx, s.o.ValkeyServer, "valkey-server", ValkeySMIs, ValkeyExists)
	}},
	{[]string{MooncakeExists}, (*servers).startMooncake},
}

// servers are those of one number of hashes. Each number has its own: the chains of
// all would take much memory.
type servers struct {
	o         Options
	load      *lookups
	placement process.Placement
	available int64 // bytes of memory for all; 0 if unknown

	rivals  []*rival
	skipped []Skipped
	running []*process.Process
	closers []func()
	python  *process.Child // of the clients; nil until there is one
}

// stop closes and stops what was started.
func (s *servers) stop() {
	for _, close := range s.closers {
		close()
	}
	for _, p := range s.running {
		p.Stop()
	}
}

// startAll starts the servers of the rivals that are wanted. What is missing is
// skipped, unless it was asked for by name.
func (s *servers) startAll(ctx context.Context) error {
	wanted := slices.DeleteFunc(Rivals(), func(name string) bool { return !s.o.wantsAny(name) })
	var tooLarge []string
	if s.available > 0 {
		tooLarge = exceeding(wanted, int64(s.load.Entries()), s.available)
	}
	for _, name := range tooLarge {
		s.skipped = append(s.skipped, Skipped{Rival: name, Why: whyExceeding(name, s.load.Hashes(), int64(s.load.Entries()), s.available)})
	}
	for _, kind := range serverKinds {
		names := slices.DeleteFunc(slices.Clone(kind.rivals), func(name string) bool {
			return !slices.Contains(wanted, name) || slices.Contains(tooLarge, name)
		})
		if len(names) == 0 {
			continue
		}
		if err := s.startKind(ctx, kind, names); err != nil {
			return err
		}
	}
	return nil
}

// startKind starts a server and keeps those of its rivals that are named.
func (s *servers) startKind(ctx context.Context, kind serverKind, names []string) error {
	s.o.OnStep("start "+names[0], 0, 1)
	rivals, err := kind.start(s, ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, process.ErrMissing) && len(s.o.Only) == 0:
		for _, name := range names {
			s.skip(name, "", err)
		}
	case errors.Is(err, measure.ErrOptions):
		return err
	case err != nil:
		return fmt.Errorf("%s: %w", names[0], lost(err))
	}
	for _, r := range rivals {
		if slices.Contains(names, r.name) && s.o.wants(r.name, r.way) {
			s.rivals = append(s.rivals, r)
		}
	}
	return nil
}

// skip notes that a rival is missing, in one way or (an empty one) in both.
func (s *servers) skip(name, way string, err error) {
	s.skipped = append(s.skipped, Skipped{name, way, strings.TrimPrefix(err.Error(), process.ErrMissing.Error()+": ")})
}

// launch starts a server on the servers' cores, to be stopped at the end.
func (s *servers) launch(ctx context.Context, cmd *exec.Cmd, ready func([]byte) (string, bool)) (*process.Process, error) {
	p, err := process.Start(ctx, cmd, process.Options{Cores: s.placement.ServerCores(), Timeout: s.o.Timeout, Ready: ready})
	if err != nil {
		return nil, err
	}
	s.running = append(s.running, p)
	return p, nil
}

// launchSelf starts one of the servers of this package, with one more argument.
func (s *servers) launchSelf(ctx context.Context, argv []string, more int) (*process.Process, error) {
	argv = append(slices.Clone(argv), strconv.Itoa(more))
	return s.launch(ctx, exec.Command(argv[0], argv[1:]...), nil)
}

// versionLine returns the first line that a program prints, such as its version.
func (s *servers) versionLine(ctx context.Context, path string, args ...string) (string, error) {
	text, err := process.Output(ctx, exec.Command(path, args...), s.o.Timeout)
	line, _, _ := strings.Cut(text, "\n")
	return line, err
}

// at returns how a server is reached in a dialect.
func (s *servers) at(addr string, d dialect) connector {
	return connector{server: wire.Server{Address: addr, Dialect: d.framing, Timeout: s.o.Timeout}, dialect: d}
}

// startFloor starts the floor server, for requests of one size.
func (s *servers) startFloor(ctx context.Context) ([]*rival, error) {
	blob := s.load.Hashes() * hashLen
	p, err := s.launchSelf(ctx, s.o.FloorServer, len(silent.lookup(s.load.tokens(), blob))+blob)
	if err != nil {
		return nil, err
	}
	r := rival{name: Floor, version: goVersion, allMiss: true, server: p}
	return []*rival{r.in(Prepared, rawSocket, s.at(p.Addr(), silent).connect)}, nil
}

// startHitline starts hitline, or takes the one that runs.
func (s *servers) startHitline(ctx context.Context) ([]*rival, error) {
	r := rival{name: Hitline, version: "hitline, version unknown"} // one that serves will do
	addr := s.o.Connect
	if addr == "" {
		if version, err := s.versionLine(ctx, s.o.Hitline, "version"); err == nil {
			r.version = version
		}
		var err error
		r.server, err = s.launch(ctx, process.Hitline(s.o.Hitline, s.o.BlockSize, process.HitlineBound(s.load.Entries())), nil)
		if err != nil {
			return nil, err
		}
		addr = r.server.Addr()
	}
	own := s.ownClient(addr)
	r.data = &data{fill: own.fill}
	at := s.at(addr, raw)
	at.server.Token = s.o.Token
	rivals := []*rival{
		r.in(Prepared, rawSocket, at.connect), r.in(Usual, rivalKinds[Hitline].client, own.connect), r.in(Anchored, rivalKinds[Hitline].client, own.connectAnchored),
	}
	if !s.o.wantsAny(HitlineZMTP) {
		return rivals, nil
	}
	r.name = HitlineZMTP
	more, err := s.overZMTP(ctx, r, addr)
	return append(rivals, more...), err
}

// overZMTP returns a rival that is asked over ZeroMQ: in the prepared way, and by pyzmq. Without
// pyzmq that is skipped, unless it was asked for by name. A token is for hitline alone.
func (s *servers) overZMTP(ctx context.Context, r rival, addr string) ([]*rival, error) {
	at := s.at(addr, zmtp)
	if r.name == HitlineZMTP {
		at.server.Token = s.o.Token
	}
	r.zmtp = true
	if r.data == nil {
		r.data = &data{fill: at.fill}
	}
	rivals := []*rival{r.in(Prepared, rawSocket, at.connect)}
	if !s.o.wants(r.name, Usual) {
		return rivals, nil
	}
	usual, err := s.usualPyzmq(ctx, r, addr)
	if at.server.Token != nil && at.server.Token() != "" {
		err = missing("the client in Python sends no token")
	}
	switch {
	case errors.Is(err, process.ErrMissing) && len(s.o.Only) == 0:
		s.skip(r.name, Usual, err)
		return rivals, nil
	case err != nil:
		return nil, err
	}
	return append(rivals, usual), nil
}

func (s *servers) startMap(ctx context.Context) ([]*rival, error) {
	p, err := s.launchSelf(ctx, s.o.MapServer, s.o.BlockSize)
	if err != nil {
		return nil, err
	}
	at := s.at(p.Addr(), plain)
	r := rival{name: GoNetMap, version: goVersion, server: p, data: &data{fill: at.fill}}
	return []*rival{r.in(Prepared, rawSocket, at.connect), r.in(Usual, rivalKinds[GoNetMap].client, connectNet(p.Addr(), s.o.Timeout))}, nil
}

func (s *servers) startGoMap(ctx context.Context) ([]*rival, error) {
	path, err := process.FindProgram(s.o.GoMap, "hitbench-gomap", "make rivals builds it")
	if err != nil {
		return nil, err
	}
	p, err := s.launch(ctx, exec.Command(path, "--block-size", strconv.Itoa(s.o.BlockSize)), nil)
	if err != nil {
		return nil, err
	}
	version := process.BuiltWith(path, "github.com/go-zeromq/zmq4", "go-zeromq")
	return s.overZMTP(ctx, rival{name: GoZMQMap, version: version, server: p}, p.Addr())
}

// startPython starts a set in Python that has its keys in a form.
func (s *servers) startPython(ctx context.Context, name, keys string) ([]*rival, error) {
	path, version, err := s.findPython(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "-", "--keys", keys, "--block-size", strconv.Itoa(s.o.BlockSize))
	cmd.Stdin = strings.NewReader(python.LookupServer)
	p, err := s.launch(ctx, cmd, nil)
	if err != nil {
		return nil, err
	}
	return s.overZMTP(ctx, rival{name: name, version: version, server: p}, p.Addr())
}
