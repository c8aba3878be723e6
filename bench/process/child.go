//go:build linux

package process

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

// Child is a program that answers requests: a line of JSON each on its standard input, and a
// line on its standard output, an object. Its first line of output says that it is ready. It
// ends with its input. Lines that do not begin with "{" are libraries' and skipped. Not safe for
// concurrent use.
type Child struct {
	*Process
	name    string
	in, out *os.File
	replies *bufio.Reader
	timeout time.Duration
}

// StartChild starts a program, which errors call by name, and waits until it is ready.
// Options.Timeout is the longest wait for that and for a reply, besides the work of its request;
// Ready has no meaning. The caller stops the program. An error wraps [measure.ErrLost], and has
// the program's last line on standard error.
func StartChild(ctx context.Context, name string, cmd *exec.Cmd, o Options) (*Child, error) {
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
	c := &Child{name: name, in: in, out: out, replies: bufio.NewReader(out), timeout: o.Timeout}
	c.Process, err = launch(cmd, o.Cores, &output{})
	theirIn.Close()
	theirOut.Close()
	if err == nil {
		err = c.exchange(ctx, 0, nil, &struct{}{})
	}
	if err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// Do sends a request and decodes its reply, which it awaits for work and Options.Timeout. After
// an error, which wraps [measure.ErrLost] or is the cause of the end of ctx, the program has
// ended.
func (c *Child) Do(ctx context.Context, work time.Duration, request, reply any) error {
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return c.exchange(ctx, work, append(text, '\n'), reply)
}

// Send sends a request that has no reply. Errors are those of Do.
func (c *Child) Send(ctx context.Context, request any) error {
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return c.exchange(ctx, 0, append(text, '\n'), nil)
}

// exchange sends text and decodes a reply, unless it is nil.
func (c *Child) exchange(ctx context.Context, work time.Duration, text []byte, reply any) error {
	limited, cancel := context.WithTimeout(ctx, work+c.timeout)
	defer cancel()
	defer context.AfterFunc(limited, c.kill)()
	_, err := c.in.Write(text)
	var line []byte
	for err == nil && reply != nil && (len(line) == 0 || line[0] != '{') {
		line, err = c.replies.ReadBytes('\n')
	}
	if err == nil && reply != nil {
		err = json.Unmarshal(line, reply)
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case limited.Err() != nil:
		err = fmt.Errorf("%w: %s gave no answer in %v", measure.ErrLost, c.name, work+c.timeout)
	case err == nil:
		return nil
	case len(line) > 0 && line[0] == '{' && line[len(line)-1] == '\n':
		err = fmt.Errorf("%w: %s says %.200q: %w", measure.ErrLost, c.name, line, err)
	default:
		c.Stop() // its last line is read then
		err = fmt.Errorf("%w: %s ended (%s): %s", measure.ErrLost, c.name, c.Ended(), c.log.last())
	}
	c.Stop()
	return err
}

// kill ends the program and a call that waits for it.
func (c *Child) kill() {
	c.Process.Stop()
	_ = c.out.SetDeadline(time.Now()) // what it has started may keep the pipe open
	_ = c.in.SetDeadline(time.Now())
}

// childGrace is how long a child may take to end after its input has.
const childGrace = 5 * time.Second

// Stop ends the program's input, and the program too if that does not end it. It may be called
// again.
func (c *Child) Stop() {
	c.in.Close()
	c.out.Close()
	if c.Process == nil {
		return
	}
	select {
	case <-c.Exited():
	case <-time.After(childGrace):
	}
	c.Process.Stop()
}
