package compare

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"github.com/hitline/hitline/bench/wire"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/hitline/hitline/bench/measure"

	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/rivals/python"
)

// pythonVersions is a program that fails where there is no pyzmq.
const pythonVersions = `import platform, zmq
print(f"Python {platform.python_version()}, pyzmq {zmq.__version__}, libzmq {zmq.zmq_version()}")`

// findPython returns the path of a Python that has pyzmq, and its versions.
func (s *servers) findPython(ctx context.Context) (path, version string, err error) {
	if path, err = findProgram(s.o.Python, "python3", "apt-get install python3-zmq"); err != nil {
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
// none: errMissing.
func (s *servers) usualPyzmq(ctx context.Context, r rival, addr string) (*rival, error) {
	_, version, err := s.findPython(ctx)
	if err != nil {
		return nil, err
	}
	r.way, r.client = Usual, pyzmqVersion.FindString(version)
	if r.client == "" {
		r.client = usualClients[r.name]
	}
	r.connect = func(ctx context.Context, w *chainSet) (client, error) {
		return &pyzmqClient{servers: s, ctx: ctx, addr: addr, load: w}, nil
	}
	return &r, nil
}

// pythonProcess is a lookup_client.py: one process for all rivals of a number of
// hashes, since the chains take much memory in Python.
type pythonProcess struct {
	*process.Process
	in      *os.File
	out     *os.File
	replies *bufio.Reader
}

// pythonReply is the process's reply to any command.
type pythonReply struct {
	Socket int
	Hits   []uint32
	Ns     []int64
	Error  string
	Bad    bool
}

// startClient starts the process on the client's core and gives it the chains.
func (s *servers) startClient(ctx context.Context, w *chainSet) (*pythonProcess, error) {
	path, _, err := s.findPython(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "-c", python.LookupClient, "--chains", strconv.Itoa(w.len()), "--hashes", strconv.Itoa(w.hashes),
		"--tokens", strconv.Itoa(int(w.tokens)), "--timeout", strconv.FormatFloat(s.o.Timeout.Seconds(), 'f', -1, 64))
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		theirIn.Close()
		in.Close()
		return nil, err
	}
	cmd.Stdin, cmd.Stdout = theirIn, theirOut
	started, err := process.Start(ctx, cmd, process.Options{Cores: s.clientCores, Timeout: s.o.Timeout})
	theirIn.Close()
	theirOut.Close()
	p := &pythonProcess{Process: started, in: in, out: out, replies: bufio.NewReader(out)}
	if err != nil {
		p.closePipes()
		return nil, err
	}
	s.closers = append(s.closers, p.stop)
	defer context.AfterFunc(ctx, p.Stop)()
	if _, err := in.Write(w.blob); err != nil {
		return nil, fmt.Errorf("giving chains to %s: %w", path, err)
	}
	return p, nil
}

func (p *pythonProcess) closePipes() {
	p.in.Close()
	p.out.Close()
}

func (p *pythonProcess) stop() {
	p.Stop()
	p.closePipes()
}

// pyzmqClient asks one server by pyzmq, from the process that all such clients share.
type pyzmqClient struct {
	servers *servers
	ctx     context.Context // that of the connection; for prepare alone
	addr    string
	load    *chainSet
	process *pythonProcess
	socket  int // its number there
}

// prepare starts the process, unless another client has, and connects: the process
// gets the chains as they are asked for.
func (c *pyzmqClient) prepare() error {
	if c.servers.python == nil {
		p, err := c.servers.startClient(c.ctx, c.load)
		if err != nil {
			return wire.Lost(err)
		}
		c.servers.python = p
	}
	c.process = c.servers.python
	reply, err := c.do(c.ctx, 1, map[string]string{"connect": c.addr})
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

func (c *pyzmqClient) ask(ctx context.Context, requests []request, answers []answer) ([]answer, error) {
	batch := batchCommand{Socket: c.socket}
	for _, r := range requests {
		absent := ""
		if r.block < c.load.hashes {
			absent = hex.EncodeToString(r.absent[:])
		}
		batch.Chains = append(batch.Chains, r.chain)
		batch.Blocks = append(batch.Blocks, r.block)
		batch.Absent = append(batch.Absent, absent)
	}
	reply, err := c.do(ctx, len(requests), batch)
	if err != nil {
		return answers, err
	}
	if len(reply.Hits) != len(requests) || len(reply.Ns) != len(requests) {
		return answers, fmt.Errorf("%w: the Python client has %d answers to %d requests", measure.ErrLost, len(reply.Hits), len(requests))
	}
	for i, hit := range reply.Hits {
		answers = append(answers, answer{hit, time.Duration(reply.Ns[i])})
	}
	return answers, nil
}

// do sends a command and reads its reply. The process is killed if there is none for
// the time that so many requests may take, or if ctx ends.
func (c *pyzmqClient) do(ctx context.Context, requests int, command any) (reply pythonReply, err error) {
	p := c.process
	defer context.AfterFunc(ctx, p.Stop)()
	text, err := json.Marshal(command)
	if err != nil {
		return reply, err
	}
	if err = p.out.SetReadDeadline(time.Now().Add(time.Duration(requests+1) * c.servers.o.Timeout)); err == nil {
		_, err = p.in.Write(append(text, '\n'))
	}
	var line []byte
	if err == nil {
		line, err = p.replies.ReadBytes('\n')
	}
	switch {
	case ctx.Err() != nil:
		return reply, context.Cause(ctx)
	case err != nil:
		return reply, fmt.Errorf("%w: the Python client: %w", measure.ErrLost, err)
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		return reply, fmt.Errorf("%w: the Python client says %q", measure.ErrLost, line)
	}
	switch {
	case reply.Bad:
		return reply, fmt.Errorf("%w: %s", measure.ErrAnswer, reply.Error)
	case reply.Error != "":
		return reply, fmt.Errorf("%w: the Python client: %s", measure.ErrLost, reply.Error)
	}
	return reply, nil
}
