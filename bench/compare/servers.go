//go:build linux

package compare

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/rivals/python"
	"github.com/hitline/hitline/bench/wire"
)

// rival is one that is measured. Its server runs.
type rival struct {
	rivalKind
	version string // of the server
	allMiss bool   // it finds nothing, whatever is asked

	fill    func(ctx context.Context) error // stores the chains; nil: there is nothing to store
	connect func(ctx context.Context) (*client, error)
}

// servers are those of one number of hashes. Each number has its own: the chains of
// all would take much memory.
type servers struct {
	o         Options
	load      *lookups
	placement process.Placement

	rivals  []*rival
	skipped []Skipped
	closers []func() // of what was started, in the order in which it began
}

// stop stops what was started.
func (s *servers) stop() {
	for _, close := range slices.Backward(s.closers) {
		close()
	}
}

// startAll starts the servers of the rivals that are wanted. What is missing is
// skipped, unless it was asked for by name.
func (s *servers) startAll(ctx context.Context) error {
	for _, server := range serverKinds {
		wanted := slices.DeleteFunc(slices.Clone(server.rivals), func(kind rivalKind) bool { return !s.o.wants(kind.name) })
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
			s.skip(kind.name, err)
		}
	case errors.Is(err, measure.ErrOptions):
		return err
	case err != nil:
		return fmt.Errorf("%s: %w", wanted[0].name, wire.Lost(err))
	}
	for i, r := range rivals {
		if r.rivalKind = server.rivals[i]; s.o.wants(r.name) {
			s.rivals = append(s.rivals, r)
		}
	}
	return nil
}

// skip notes that a rival is left out.
func (s *servers) skip(name string, err error) {
	s.skipped = append(s.skipped, Skipped{name, strings.TrimPrefix(err.Error(), process.ErrMissing.Error()+": ")})
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

// versionLine returns the first line that a program prints, such as its version.
func (s *servers) versionLine(ctx context.Context, path string, args ...string) (string, error) {
	text, err := process.Output(ctx, exec.Command(path, args...), s.o.Timeout)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	line, _, _ := strings.Cut(text, "\n")
	return line, nil
}

// target returns a server that speaks hitline's frames.
func (s *servers) target(p *process.Process, d wire.Dialect) target {
	return target{server: wire.Server{Address: p.Addr(), Dialect: d, Timeout: s.o.Timeout}, load: s.load, prefix: d.HitPrefix()}
}

// startRaw starts the server of [ServeRaw], for requests of one size. It is sent what hitline is.
func (s *servers) startRaw(ctx context.Context) ([]*rival, error) {
	size := len(lookupHead(s.load, wire.Raw)) + s.load.Hashes()*hashLen
	argv := append(slices.Clone(s.o.RawServer), strconv.Itoa(size))
	p, err := s.launch(ctx, exec.Command(argv[0], argv[1:]...), nil)
	if err != nil {
		return nil, err
	}
	asked := s.target(p, wire.Raw)
	asked.prefix = nil
	return []*rival{{version: runtime.Version(), allMiss: true, connect: asked.connect}}, nil
}

// startHitline starts hitline, which is asked in two dialects.
func (s *servers) startHitline(ctx context.Context) ([]*rival, error) {
	version, err := s.versionLine(ctx, s.o.Hitline, "version")
	if err != nil {
		version = "hitline, version unknown" // one that serves will do
	}
	p, err := s.launch(ctx, process.Hitline(s.o.Hitline, blockSize, s.load.Entries()), nil)
	if err != nil {
		return nil, err
	}
	raw, zmtp := s.target(p, wire.Raw), s.target(p, wire.ZMTP)
	return []*rival{
		{version: version, fill: raw.fill, connect: raw.connect},
		{version: version, connect: zmtp.connect}, // it finds what was stored for the other
	}, nil
}

// pythonVersions is a program that fails where there is no pyzmq.
const pythonVersions = `import platform, zmq
print(f"Python {platform.python_version()}, pyzmq {zmq.__version__}, libzmq {zmq.zmq_version()}")`

// startPython starts a set in Python that has its keys in a form.
func (s *servers) startPython(ctx context.Context, keys string) ([]*rival, error) {
	path, err := process.FindProgram(s.o.Python, "python3", "apt-get install python3-zmq")
	if err != nil {
		return nil, err
	}
	version, err := s.versionLine(ctx, path, "-c", pythonVersions)
	if err != nil {
		return nil, fmt.Errorf("%w: cannot import zmq: %w; python3 -m pip install pyzmq, or name a Python that has it with --python", process.ErrMissing, err)
	}
	cmd := exec.Command(path, "-", "--keys", keys, "--block-size", strconv.Itoa(blockSize))
	cmd.Stdin = strings.NewReader(python.LookupServer)
	p, err := s.launch(ctx, cmd, nil)
	if err != nil {
		return nil, err
	}
	asked := s.target(p, wire.ZMTP)
	return []*rival{{version: version, fill: asked.fill, connect: asked.connect}}, nil
}
