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
		return "", "", missing("%s cannot import zmq (%w); python3 -m pip install pyzmq, or name a Python that has it with --python", path, err)
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
	return r.in(Usual, cmp.Or(pyzmqVersion.FindString(version), rivalKinds[r.name].client), func(_ context.Context, w *lookups) (client, error) {
		return &pyzmqClient{servers: s, addr: addr, load: w}, nil
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

// startClient starts a lookup_client.py on the client's core and gives it the chains. One process
// serves all rivals of a number of hashes, since the chains take much memory in Python.
func (s *servers) startClient(ctx context.Context, w *lookups) (*process.Child, error) {
	path, _, err := s.findPython(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "-c", python.LookupClient, "--chains", strconv.Itoa(w.Len()), "--hashes", strconv.Itoa(w.Hashes()),
		"--tokens", strconv.Itoa(int(w.tokens())), "--timeout", strconv.FormatFloat(s.o.Timeout.Seconds(), 'f', -1, 64))
	p, err := process.StartChild(ctx, "the Python client", cmd, process.Options{Cores: s.placement.ClientCores(), Timeout: s.o.Timeout})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, p.Stop)
	for i := range w.Len() {
		if err := p.SendBytes(ctx, w.Chain(i)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// pyzmqClient asks one server by pyzmq, from the process that all such clients share.
type pyzmqClient struct {
	servers *servers
	addr    string
	load    *lookups
	process *process.Child
	socket  int // its number there
}

// prepare starts the process, unless another client has, and connects: the process
// gets the chains as they are asked for.
func (c *pyzmqClient) prepare(ctx context.Context) error {
	if c.servers.python == nil {
		p, err := c.servers.startClient(ctx, c.load)
		if err != nil {
			return err
		}
		c.servers.python = p
	}
	c.process = c.servers.python
	reply, err := c.do(ctx, 1, map[string]string{"connect": c.addr})
	c.socket = reply.Socket
	return err
}

func (c *pyzmqClient) close() {} // the process ends with the servers

// batchCommand is the process's command to send requests.
type batchCommand struct {
	Socket int      `json:"socket"`
	Chains []int    `json:"chains"`
	Blocks []int    `json:"blocks"`
	Absent []string `json:"absent"`
}

func (c *pyzmqClient) ask(ctx context.Context, lookups []workload.Lookup, answers []answer) ([]answer, error) {
	batch := batchCommand{Socket: c.socket}
	for _, l := range lookups {
		absent := ""
		if !c.load.Hits(l) {
			absent = hex.EncodeToString(l.Absent[:])
		}
		batch.Chains = append(batch.Chains, l.Chain)
		batch.Blocks = append(batch.Blocks, l.Stored)
		batch.Absent = append(batch.Absent, absent)
	}
	reply, err := c.do(ctx, len(lookups), batch)
	if err != nil {
		return answers, err
	}
	if len(reply.Hits) != len(lookups) || len(reply.Ns) != len(lookups) {
		return answers, fmt.Errorf("%w: the Python client has %d answers to %d requests", measure.ErrLost, len(reply.Hits), len(lookups))
	}
	for i, hit := range reply.Hits {
		answers = append(answers, answer{hit, time.Duration(reply.Ns[i])})
	}
	return answers, nil
}

// do sends a command and reads its reply, which it awaits for the time that so many requests may
// take.
func (c *pyzmqClient) do(ctx context.Context, requests int, command any) (reply pythonReply, err error) {
	if err := c.process.Do(ctx, time.Duration(requests)*c.servers.o.Timeout, command, &reply); err != nil {
		return reply, err
	}
	switch {
	case reply.Bad:
		return reply, fmt.Errorf("%w: %s", measure.ErrAnswer, reply.Error)
	case reply.Error != "":
		return reply, fmt.Errorf("%w: the Python client: %s", measure.ErrLost, reply.Error)
	}
	return reply, nil
}
