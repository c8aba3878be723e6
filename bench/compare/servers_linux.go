package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/hitline/hitline/bench"
	"github.com/hitline/hitline/bench/internal/process"
	"github.com/hitline/hitline/bench/rivals/python"
)

// errMissing says that a rival is not on this machine.
var errMissing = errors.New("missing")

// missing returns such an error, with what to do.
func missing(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errMissing, fmt.Errorf(format, args...))
}

// kind is a server, and the rivals that are on it.
type kind struct {
	rivals []string
	start  func(m *meter, ctx context.Context) ([]*rival, error)
}

// kinds are all servers but the floor's, of which each number of hashes has its own.
var kinds = []kind{
	{[]string{Hitline, HitlineZMTP}, (*meter).startHitline},
	{[]string{GoNetMap}, (*meter).startMap},
	{[]string{GoZMQMap}, (*meter).startGoMap},
	{[]string{PythonBare}, func(m *meter, ctx context.Context) ([]*rival, error) { return m.startPython(ctx, PythonBare, "hashes") }},
	{[]string{Python}, func(m *meter, ctx context.Context) ([]*rival, error) { return m.startPython(ctx, Python, "strings") }},
	{[]string{RedisSMIsMember, RedisExists}, (*meter).startRedis},
	{[]string{ValkeySMIs, ValkeyExists}, (*meter).startValkey},
	{[]string{MooncakeExists}, (*meter).startMooncake},
}

// startAll starts the servers of the rivals that are wanted. What is missing goes
// to the report, unless it was asked for by name.
func (m *meter) startAll(ctx context.Context) error {
	for _, k := range kinds {
		if err := m.startKind(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

func (m *meter) startKind(ctx context.Context, k kind) error {
	var wanted []string
	for _, name := range k.rivals {
		if m.o.wants(name) {
			wanted = append(wanted, name)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	m.o.OnStep("start "+wanted[0], 0, 1)
	rivals, err := k.start(m, ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errMissing) && len(m.o.Only) == 0:
		for _, name := range wanted {
			m.report.Skipped = append(m.report.Skipped, Skipped{name, strings.TrimPrefix(err.Error(), errMissing.Error()+": ")})
		}
	case errors.Is(err, bench.ErrOptions):
		return err
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrLost, wanted[0], err)
	}
	for _, r := range rivals {
		if m.o.wants(r.name) {
			m.rivals = append(m.rivals, r)
		}
	}
	return nil
}

// launch starts a server on the servers' core, to be stopped at the end.
func (m *meter) launch(ctx context.Context, cmd *exec.Cmd, ready func([]byte) (string, bool)) (addr string, err error) {
	core := process.AnyCore
	if m.cores != nil {
		core = m.cores[1]
	}
	p, err := process.Start(ctx, cmd, process.Options{Core: core, Timeout: m.o.Timeout, Ready: ready})
	if err != nil {
		return "", err
	}
	m.servers = append(m.servers, p)
	return p.Addr(), nil
}

// says returns the first line that a program prints, such as its version.
func (m *meter) says(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, m.o.Timeout)
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

// find returns the path of a program that was named, or else is on PATH; what to
// do is said if it is not.
func find(named, name, todo string) (string, error) {
	if named == "" {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", missing("%s is not on PATH; %s", name, todo)
		}
		return path, nil
	}
	path, err := exec.LookPath(named)
	if err != nil {
		return "", fmt.Errorf("%w: %w", bench.ErrOptions, err)
	}
	return path, nil
}

func (m *meter) startHitline(ctx context.Context) ([]*rival, error) {
	version, err := m.says(ctx, m.o.Hitline, "version")
	if err != nil {
		version = "hitline, version unknown" // one that serves will do
	}
	cmd := process.Hitline(m.o.Hitline, m.o.HashTokens, process.HitlineBound(m.report.Entries))
	addr, err := m.launch(ctx, cmd, nil)
	if err != nil {
		return nil, err
	}
	return []*rival{
		{name: Hitline, version: version, note: "raw dialect", open: openWire(addr, raw, m.o.Timeout)},
		{name: HitlineZMTP, version: version, note: "a ZeroMQ client", open: openWire(addr, zmtp, m.o.Timeout)},
	}, nil
}

func (m *meter) startMap(ctx context.Context) ([]*rival, error) {
	argv := append(m.o.MapServer[:len(m.o.MapServer):len(m.o.MapServer)], strconv.Itoa(m.o.HashTokens))
	addr, err := m.launch(ctx, exec.Command(argv[0], argv[1:]...), nil)
	if err != nil {
		return nil, err
	}
	return []*rival{{name: GoNetMap, version: goVersion, note: "Go's net and a Go map", open: openWire(addr, plain, m.o.Timeout)}}, nil
}

func (m *meter) startGoMap(ctx context.Context) ([]*rival, error) {
	path, err := find(m.o.GoMap, "hitbench-gomap", "make rivals builds it")
	if err != nil {
		return nil, err
	}
	version, err := m.says(ctx, path, "--version")
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", path, err)
	}
	addr, err := m.launch(ctx, exec.Command(path, "--block-size", strconv.Itoa(m.o.HashTokens)), nil)
	if err != nil {
		return nil, err
	}
	return []*rival{{name: GoZMQMap, version: version, note: "a Go map behind ZeroMQ in Go", open: openWire(addr, zmtp, m.o.Timeout)}}, nil
}

// pythonVersions is a program that fails where there is no pyzmq.
const pythonVersions = `import platform, zmq
print(f"Python {platform.python_version()}, pyzmq {zmq.__version__}, libzmq {zmq.zmq_version()}")`

func (m *meter) startPython(ctx context.Context, name, keys string) ([]*rival, error) {
	path, err := find(m.o.Python, "python3", "apt-get install python3-zmq")
	if err != nil {
		return nil, err
	}
	version, err := m.says(ctx, path, "-c", pythonVersions)
	if err != nil {
		return nil, missing("%s cannot import zmq (%w); python3 -m pip install pyzmq, or name a Python that has it with --python", path, err)
	}
	cmd := exec.Command(path, "-", "--keys", keys, "--block-size", strconv.Itoa(m.o.HashTokens))
	cmd.Stdin = strings.NewReader(python.LookupServer)
	addr, err := m.launch(ctx, cmd, nil)
	if err != nil {
		return nil, err
	}
	note := "a set of the bare hashes"
	if name == Python {
		note = "the work of an engine's lookup thread: keys built, looked up in a set"
	}
	return []*rival{{name: name, version: version, note: note, open: openWire(addr, zmtp, m.o.Timeout)}}, nil
}

// startFloor starts the floor server for one number of hashes.
func (m *meter) startFloor(ctx context.Context, w *workload) (*rival, error) {
	size := len(silent.lookup(w.tokens, w.hashes*hashLen)) + w.hashes*hashLen
	argv := append(m.o.FloorServer[:len(m.o.FloorServer):len(m.o.FloorServer)], strconv.Itoa(size))
	addr, err := m.launch(ctx, exec.Command(argv[0], argv[1:]...), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrLost, Floor, err)
	}
	return &rival{
		name: Floor, version: goVersion, note: "reads as many bytes and answers 4: no lookup", allMiss: true,
		open: openWire(addr, silent, m.o.Timeout),
	}, nil
}
