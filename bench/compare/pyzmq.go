package compare

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/rivals/python"
	"github.com/hitline/hitline/bench/workload"
)

// pythonVersions is a program that fails where there is no pyzmq.
const pythonVersions = `import platform, zmq
print(f"Python {platform.python_version()}, pyzmq {zmq.__version__}, libzmq {zmq.zmq_version()}")`

// findPython returns the path of a Python that has pyzmq, and its versions.
func (s *servers) findPython(ctx context.Context) (path, version string, err error) {
	if path, err = process.FindProgram(s.o.Python, "python3", "apt-get install python3-zmq"); err != nil {
		return "", "", err
	}
	if version, err = s.versionLine(ctx, path, "-c", pythonVersions); err != nil {
		return "", "", missing("cannot import zmq: %w; python3 -m pip install pyzmq, or name a Python that has it with --python", err)
	}
	return path, version, nil
}

// pyzmqVersion finds the version of pyzmq among those of a Python.
var pyzmqVersion = regexp.MustCompile(`pyzmq \S+[^,\s]`)

// usualPyzmq returns the rival that is another one asked by pyzmq, or why there is
// none: [process.ErrMissing].
func (s *servers) usualPyzmq(ctx context.Context, r rival, addr string) (*rival, error) {
	_, version, err := s.findPython(ctx)
	if err != nil {
		return nil, err
	}
	return r.in(Usual, cmp.Or(pyzmqVersion.FindString(version), "pyzmq"), func(ctx context.Context) (client, error) {
		return s.connectPyzmq(ctx, addr)
	}), nil
}

// pythonReply is the reply of lookup_client.py to any command.
type pythonReply struct {
	Socket int
	Hits   []uint32
	Ns     []int64
	Error  string
	Bad    bool
}

// pyzmqClients is a lookup_client.py, which serves all rivals of a number of hashes, since the
// chains take much memory in Python.
type pyzmqClients struct {
	child   *process.Child
	timeout time.Duration // of one request
}

// startPyzmq starts the process on the client's core and gives it the chains, as they are asked for.
func (s *servers) startPyzmq(ctx context.Context) (*pyzmqClients, error) {
	path, _, err := s.findPython(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "-c", python.LookupClient, "--chains", strconv.Itoa(s.load.Len()), "--hashes", strconv.Itoa(s.load.Hashes()),
		"--tokens", strconv.Itoa(int(s.load.tokens())), "--timeout", strconv.FormatFloat(s.o.Timeout.Seconds(), 'f', -1, 64))
	p, err := process.StartChild(ctx, "the Python client", cmd, process.Options{Cores: s.placement.ClientCores(), Timeout: s.o.Timeout})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, p.Stop)
	for i := range s.load.Len() {
		if err := p.SendBytes(ctx, s.load.Chain(i)); err != nil {
			return nil, err
		}
	}
	return &pyzmqClients{p, s.o.Timeout}, nil
}

// connectPyzmq returns a client for one server, in the process that all such clients share.
func (s *servers) connectPyzmq(ctx context.Context, addr string) (client, error) {
	if s.python == nil {
		p, err := s.startPyzmq(ctx)
		if err != nil {
			return client{}, err
		}
		s.python = p
	}
	reply, err := s.python.do(ctx, 1, map[string]string{"connect": addr})
	ask := func(ctx context.Context, lookups []workload.Lookup) ([]answer, error) {
		batch := batchCommand{Socket: reply.Socket}
		for _, l := range lookups {
			absent := ""
			if !s.load.Hits(l) {
				absent = hex.EncodeToString(l.Absent[:])
			}
			batch.Chains = append(batch.Chains, l.Chain)
			batch.Blocks = append(batch.Blocks, l.Stored)
			batch.Absent = append(batch.Absent, absent)
		}
		return s.python.ask(ctx, batch)
	}
	return client{askAll: ask, close: func() {}}, err // the process ends with the servers
}

// batchCommand is the process's command to send requests.
type batchCommand struct {
	Socket int      `json:"socket"`
	Chains []int    `json:"chains"`
	Blocks []int    `json:"blocks"`
	Absent []string `json:"absent"`
}

// ask sends a batch and returns its answers.
func (c *pyzmqClients) ask(ctx context.Context, batch batchCommand) ([]answer, error) {
	reply, err := c.do(ctx, len(batch.Chains), batch)
	if err != nil {
		return nil, err
	}
	if len(reply.Hits) != len(batch.Chains) || len(reply.Ns) != len(batch.Chains) {
		return nil, fmt.Errorf("%w: the Python client has %d answers to %d requests", measure.ErrLost, len(reply.Hits), len(batch.Chains))
	}
	answers := make([]answer, len(reply.Hits))
	for i, hit := range reply.Hits {
		answers[i] = answer{hit, time.Duration(reply.Ns[i])}
	}
	return answers, nil
}

// do sends a command and reads its reply, which it awaits for the time that so many requests may
// take.
func (c *pyzmqClients) do(ctx context.Context, requests int, command any) (reply pythonReply, err error) {
	err = c.child.Do(ctx, time.Duration(requests)*c.timeout, command, &reply)
	switch {
	case err != nil:
	case reply.Bad:
		err = fmt.Errorf("%w: %s", measure.ErrAnswer, reply.Error)
	case reply.Error != "":
		err = fmt.Errorf("%w: the Python client: %s", measure.ErrLost, reply.Error)
	}
	return reply, err
}
