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

// rival is one that is measured, in one way. Its server runs.
type rival struct {
	name    string
	way     string
	client  string // who asks
	version string // of the server, and of the client if it is another's
	note    string // what limits the meaning of its figures
	zmtp    bool   // it is asked over ZeroMQ
	allMiss bool   // it finds nothing, whatever is asked

	server  *process.Process // nil if it was not started here
	data    *data            // what is stored with it; shared by the rivals that find it there; nil: nothing
	connect func(ctx context.Context) (client, error)
}

// in returns the rival asked in a way, by a client.
func (r rival) in(way, by string, connect func(context.Context) (client, error)) *rival {
	r.way, r.client, r.connect = way, by, connect
	return &r
}

// data is what a server holds.
type data struct {
	fill func(ctx context.Context) error
	done bool
}

// String names the rival for errors and notes.
func (r *rival) String() string { return r.name + " (" + r.way + ")" }

// servers are those of one number of hashes. Each number has its own: the chains of
// all would take much memory.
type servers struct {
	o         Options
	load      *lookups
	placement process.Placement

	rivals  []*rival
	skipped []Skipped
	closers []func()      // of what was started, in the order in which it began
	python  *pyzmqClients // nil until there is one
}

// stop closes and stops what was started.
func (s *servers) stop() {
	for _, close := range slices.Backward(s.closers) {
		close()
	}
}

// memoryShare is the part of the available memory that the rivals may take, in percent.
const memoryShare = 80

// startAll starts the servers of the rivals that are wanted. What is missing is
// skipped, unless it was asked for by name. available is the memory in bytes, 0 if that is unknown:
// rivals that do not fit beside those before them are skipped. Hitline always fits.
func (s *servers) startAll(ctx context.Context, available int64) error {
	available = available / 100 * memoryShare
	taken := int64(0)
	for _, server := range serverKinds {
		var wanted []rivalKind
		for _, kind := range server.rivals {
			need := kind.bytes * int64(s.load.Entries())
			switch {
			case !s.o.wantsAny(kind.name):
			case available > 0 && kind.name != Hitline && need > 0 && taken+need > available:
				s.skip(kind.name, "", fmt.Errorf("at %d hashes it needs about %d MiB of memory, of %d MiB for all; measure fewer rivals (--only), or rotate over less (--rotate)",
					s.load.Hashes(), need>>20, available>>20))
			default:
				taken += need
				wanted = append(wanted, kind)
			}
		}
		if len(wanted) == 0 {
			continue
		}
		if err := s.startKind(ctx, server, wanted); err != nil {
			return err
		}
	}
	return nil
}

// startKind starts a server and keeps those of its rivals that are wanted.
func (s *servers) startKind(ctx context.Context, server serverKind, wanted []rivalKind) error {
	s.o.OnStep("start "+wanted[0].name, 0, 1)
	rivals, err := server.start(s, ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, process.ErrMissing) && len(s.o.Only) == 0:
		for _, kind := range wanted {
			s.skip(kind.name, "", err)
		}
	case errors.Is(err, measure.ErrOptions):
		return err
	case err != nil:
		return fmt.Errorf("%s: %w", wanted[0].name, lost(err))
	}
	for _, r := range rivals {
		i := slices.IndexFunc(wanted, func(kind rivalKind) bool { return kind.name == r.name })
		if i >= 0 && s.o.wants(r.name, r.way) {
			r.note = wanted[i].note
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
	s.closers = append(s.closers, p.Stop)
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
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	line, _, _ := strings.Cut(text, "\n")
	return line, nil
}

// prepared returns how a server is asked by prepared bytes.
func (s *servers) prepared(addr string, d dialect) prepared {
	return prepared{server: wire.Server{Address: addr, Dialect: d.framing, Timeout: s.o.Timeout}, dialect: d, load: s.load}
}

// startFloor starts the floor server, for requests of one size.
func (s *servers) startFloor(ctx context.Context) ([]*rival, error) {
	blob := s.load.Hashes() * hashLen
	p, err := s.launchSelf(ctx, s.o.FloorServer, len(silent.lookup(s.load.tokens(), blob))+blob)
	if err != nil {
		return nil, err
	}
	r := rival{name: Floor, version: goVersion, allMiss: true, server: p}
	return []*rival{r.in(Prepared, rawSocket, s.prepared(p.Addr(), silent).connect)}, nil
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
	asked := s.prepared(addr, raw)
	asked.server.Token = s.o.Token
	r.data = &data{fill: func(ctx context.Context) error { return s.fillHitline(ctx, addr) }}
	const client = "lookup/client"
	rivals := []*rival{
		r.in(Prepared, rawSocket, asked.connect), r.in(Usual, client, s.connectHitline(addr)),
	}
	if !s.o.wantsAny(HitlineZMTP) {
		return rivals, nil
	}
	r.name = HitlineZMTP
	more, err := s.overZMTP(ctx, r, addr, s.o.Token)
	return append(rivals, more...), err
}

// overZMTP returns a rival that is asked over ZeroMQ: in the prepared way, and by pyzmq. Without
// pyzmq that is skipped, unless it was asked for by name. token may be nil.
func (s *servers) overZMTP(ctx context.Context, r rival, addr string, token func() string) ([]*rival, error) {
	asked := s.prepared(addr, zmtp)
	asked.server.Token = token
	r.zmtp = true
	if r.data == nil {
		r.data = &data{fill: asked.fill}
	}
	rivals := []*rival{r.in(Prepared, rawSocket, asked.connect)}
	if !s.o.wants(r.name, Usual) {
		return rivals, nil
	}
	usual, err := s.usualPyzmq(ctx, r, addr)
	if token != nil && token() != "" {
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
	asked := s.prepared(p.Addr(), plain)
	r := rival{name: GoNetMap, version: goVersion, server: p, data: &data{fill: asked.fill}}
	return []*rival{r.in(Prepared, rawSocket, asked.connect), r.in(Usual, "Go's net", s.connectNet(p.Addr()))}, nil
}

func (s *servers) startGoMap(ctx context.Context) ([]*rival, error) {
	path, err := process.FindProgram(s.o.GoMap, "hitbench-gomap", "make rivals builds it")
	if err != nil {
		return nil, err
	}
	version := process.BuiltWith(path, "github.com/go-zeromq/zmq4", "go-zeromq")
	return s.startZMTP(ctx, rival{name: GoZMQMap, version: version}, exec.Command(path, "--block-size", strconv.Itoa(s.o.BlockSize)))
}

// startPython starts a set in Python that has its keys in a form.
func (s *servers) startPython(ctx context.Context, name, keys string) ([]*rival, error) {
	path, version, err := s.findPython(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "-", "--keys", keys, "--block-size", strconv.Itoa(s.o.BlockSize))
	cmd.Stdin = strings.NewReader(python.LookupServer)
	return s.startZMTP(ctx, rival{name: name, version: version}, cmd)
}

// startZMTP starts a server that speaks ZeroMQ.
func (s *servers) startZMTP(ctx context.Context, r rival, cmd *exec.Cmd) ([]*rival, error) {
	var err error
	if r.server, err = s.launch(ctx, cmd, nil); err != nil {
		return nil, err
	}
	return s.overZMTP(ctx, r, r.server.Addr(), nil)
}
