package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/rivals/python"
)

// errMissing says that a rival is not on this machine.
var errMissing = errors.New("missing")

// missing returns such an error, with what to do.
func missing(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errMissing, fmt.Errorf(format, args...))
}

// rawSocket is the client of all that is asked in the prepared way.
const rawSocket = "raw socket"

// serverKind is a kind of server, and the rivals that are on it.
type serverKind struct {
	rivals []string
	ways   []string // in which it is asked
	start  func(s *servers, ctx context.Context) ([]*rival, error)
}

// serverKinds are all servers, in the order of the report.
var serverKinds = []serverKind{
	{[]string{Floor}, []string{Prepared}, (*servers).startFloor},
	{[]string{Hitline, HitlineZMTP}, Ways(), (*servers).startHitline},
	{[]string{GoNetMap}, Ways(), (*servers).startMap},
	{[]string{GoZMQMap}, Ways(), (*servers).startGoMap},
	{[]string{PythonBare}, Ways(), func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startPython(ctx, PythonBare, "hashes")
	}},
	{[]string{Python}, Ways(), func(s *servers, ctx context.Context) ([]*rival, error) { return s.startPython(ctx, Python, "strings") }},
	{[]string{RedisSMIsMember, RedisExists}, Ways(), (*servers).startRedis},
	{[]string{ValkeySMIs, ValkeyExists}, Ways(), (*servers).startValkey},
	{[]string{MooncakeExists}, Ways(), (*servers).startMooncake},
}

// servers are those of one number of hashes. Each number has its own: the chains of
// all would take much memory.
type servers struct {
	o           Options
	load        *chainSet
	clientCores []int // nil: not pinned
	serverCores []int // likewise
	available   int64 // bytes of memory for all; 0 if unknown

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
	var wanted []string
	for _, kind := range serverKinds {
		for _, name := range kind.rivals {
			if s.o.wants(name, kind.ways...) {
				wanted = append(wanted, name)
			}
		}
	}
	stored := int64(s.load.len()) * int64(s.load.hashes)
	var tooLarge []string
	if s.available > 0 {
		tooLarge = exceeding(wanted, stored, s.available)
	}
	for _, name := range tooLarge {
		s.skipped = append(s.skipped, Skipped{Rival: name, Why: whyExceeding(name, s.load.hashes, stored, s.available)})
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
	case errors.Is(err, errMissing) && len(s.o.Only) == 0:
		for _, name := range names {
			s.skip(name, "", err)
		}
	case errors.Is(err, measure.ErrOptions):
		return err
	case err != nil:
		return fmt.Errorf("%w: %s: %w", measure.ErrLost, names[0], err)
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
	s.skipped = append(s.skipped, Skipped{name, way, strings.TrimPrefix(err.Error(), errMissing.Error()+": ")})
}

// launch starts a server on the servers' cores, to be stopped at the end.
func (s *servers) launch(ctx context.Context, cmd *exec.Cmd, ready func([]byte) (string, bool)) (addr string, err error) {
	p, err := process.Start(ctx, cmd, process.Options{Cores: s.serverCores, Timeout: s.o.Timeout, Ready: ready})
	if err != nil {
		return "", err
	}
	s.running = append(s.running, p)
	return p.Addr(), nil
}

// withPyzmq returns the rivals, and those of them that are asked over ZeroMQ by pyzmq
// as well. Without pyzmq these are skipped, unless they were asked for by name.
func (s *servers) withPyzmq(ctx context.Context, addr string, rivals ...*rival) ([]*rival, error) {
	all := rivals
	for _, r := range rivals {
		if !r.zmtp || !s.o.wants(r.name, Usual) {
			continue
		}
		usual, err := s.usualPyzmq(ctx, *r, addr)
		switch {
		case errors.Is(err, errMissing) && len(s.o.Only) == 0:
			s.skip(r.name, Usual, err)
		case err != nil:
			return nil, err
		default:
			all = append(all, usual)
		}
	}
	return all, nil
}

// versionLine returns the first line that a program prints, such as its version.
func (s *servers) versionLine(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second // what a script has started may keep its output open
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(problem.String()), "\n")
		return "", fmt.Errorf("%w: %s", cmp.Or(ctx.Err(), err), lines[len(lines)-1])
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line, nil
}

// findProgram returns the path of a program that was named, or else is on PATH; what to
// do is said if it is not.
func findProgram(named, name, todo string) (string, error) {
	if named == "" {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", missing("%s is not on PATH; %s", name, todo)
		}
		return path, nil
	}
	path, err := exec.LookPath(named)
	if err != nil {
		return "", fmt.Errorf("%w: %w", measure.ErrOptions, err)
	}
	return path, nil
}

// hitlineNote says what hitline's own client does by default.
const hitlineNote = "raw dialect; lookup/client asks by anchors for 4096 hashes or more"

func (s *servers) startHitline(ctx context.Context) ([]*rival, error) {
	version, err := s.versionLine(ctx, s.o.Hitline, "version")
	if err != nil {
		version = "hitline, version unknown" // one that serves will do
	}
	cmd := process.Hitline(s.o.Hitline, s.o.HashTokens, process.HitlineBound(s.load.len()*s.load.hashes))
	addr, err := s.launch(ctx, cmd, nil)
	if err != nil {
		return nil, err
	}
	stored := fillHitline(addr, s.o.Timeout)
	rivals := []*rival{
		{name: Hitline, way: Prepared, client: rawSocket, version: version, note: hitlineNote, data: stored, connect: connectRaw(addr, raw, s.o.Timeout)},
		{name: Hitline, way: Usual, client: usualClients[Hitline], version: version, note: hitlineNote, data: stored, connect: connectHitline(addr, s.o.Timeout)},
	}
	if s.o.wants(HitlineZMTP, Ways()...) {
		rivals = append(rivals, s.preparedZMTP(HitlineZMTP, version, "asked over ZeroMQ", addr, stored))
	}
	return s.withPyzmq(ctx, addr, rivals...)
}

// preparedZMTP returns a rival that is asked over ZeroMQ in the prepared way.
func (s *servers) preparedZMTP(name, version, note, addr string, stored *data) *rival {
	return &rival{name: name, way: Prepared, client: rawSocket, version: version, note: note, zmtp: true, data: stored, connect: connectRaw(addr, zmtp, s.o.Timeout)}
}

func (s *servers) startMap(ctx context.Context) ([]*rival, error) {
	argv := append(s.o.MapServer[:len(s.o.MapServer):len(s.o.MapServer)], strconv.Itoa(s.o.HashTokens))
	addr, err := s.launch(ctx, exec.Command(argv[0], argv[1:]...), nil)
	if err != nil {
		return nil, err
	}
	stored := fillRaw(addr, plain, s.o.Timeout)
	r := rival{name: GoNetMap, version: goVersion, note: "Go's net and a Go map", data: stored}
	prepared, usual := r, r
	prepared.way, prepared.client, prepared.connect = Prepared, rawSocket, connectRaw(addr, plain, s.o.Timeout)
	usual.way, usual.client, usual.connect = Usual, usualClients[GoNetMap], connectNet(addr, s.o.Timeout)
	return []*rival{&prepared, &usual}, nil
}

func (s *servers) startGoMap(ctx context.Context) ([]*rival, error) {
	path, err := findProgram(s.o.GoMap, "hitbench-gomap", "make rivals builds it")
	if err != nil {
		return nil, err
	}
	version, err := s.versionLine(ctx, path, "--version")
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", path, err)
	}
	addr, err := s.launch(ctx, exec.Command(path, "--block-size", strconv.Itoa(s.o.HashTokens)), nil)
	if err != nil {
		return nil, err
	}
	stored := fillRaw(addr, zmtp, s.o.Timeout)
	return s.withPyzmq(ctx, addr, s.preparedZMTP(GoZMQMap, version, "a Go map behind ZeroMQ in Go", addr, stored))
}

func (s *servers) startPython(ctx context.Context, name, keys string) ([]*rival, error) {
	path, version, err := s.findPython(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "-", "--keys", keys, "--block-size", strconv.Itoa(s.o.HashTokens))
	cmd.Stdin = strings.NewReader(python.LookupServer)
	addr, err := s.launch(ctx, cmd, nil)
	if err != nil {
		return nil, err
	}
	note := "a set of the bare hashes"
	if name == Python {
		note = "the work of an engine's lookup thread: keys built, looked up in a set"
	}
	return s.withPyzmq(ctx, addr, s.preparedZMTP(name, version, note, addr, fillRaw(addr, zmtp, s.o.Timeout)))
}

// startFloor starts the floor server, for requests of one size.
func (s *servers) startFloor(ctx context.Context) ([]*rival, error) {
	size := len(silent.lookup(s.load.tokens, s.load.hashes*hashLen)) + s.load.hashes*hashLen
	argv := append(s.o.FloorServer[:len(s.o.FloorServer):len(s.o.FloorServer)], strconv.Itoa(size))
	addr, err := s.launch(ctx, exec.Command(argv[0], argv[1:]...), nil)
	if err != nil {
		return nil, err
	}
	return []*rival{{
		name: Floor, way: Prepared, client: rawSocket, version: goVersion, note: "reads as many bytes and answers 4: no lookup",
		allMiss: true, connect: connectRaw(addr, silent, s.o.Timeout),
	}}, nil
}
