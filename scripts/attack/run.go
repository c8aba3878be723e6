//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// runner runs the attacks.
type runner struct {
	self     string // path of this program
	duration time.Duration
	hold     time.Duration
	long     bool
	config   string // path of the servers' configuration, empty without TLS
}

// half is one attack, or its control.
type half struct {
	stats       stats
	sent        sentReport
	rssBefore   int // MiB, of the attacked server
	rssPeak     int
	connections int64            // open at the end of the attack, without the tool's own
	counters    map[string]int64 // of stat that changed
	died        string           // how the attacked server ended, if it did
	attackError string
}

// child is the process that attacks.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan fromChild
}

// startChild starts the process that runs an attack.
func (r *runner) startChild(ctx context.Context, row attack) (*child, error) {
	args := []string{"attacker", row.name, r.duration.String(), r.hold.String(), strconv.FormatBool(r.long)}
	cmd := exec.CommandContext(ctx, r.self, args...)
	cmd.SysProcAttr = childAttributes()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("attack: cannot start the attacking process: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("attack: cannot start the attacking process: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("attack: cannot start the attacking process: %w", err)
	}
	c := &child{cmd: cmd, in: in, lines: make(chan fromChild)}
	go func() {
		defer close(c.lines)
		lines := json.NewDecoder(out)
		for {
			var line fromChild
			if lines.Decode(&line) != nil { // it has ended
				return
			}
			c.lines <- line
		}
	}()
	return c, nil
}

// attackTimeout bounds the preparation and the run of an attack, beside its duration.
const attackTimeout = 5 * time.Minute

// next returns the next line of the child.
func (c *child) next(ctx context.Context, timeout time.Duration) (fromChild, error) {
	select {
	case line, ok := <-c.lines:
		if !ok {
			return line, errors.New("attack: the attacking process has ended")
		}
		return line, nil
	case <-time.After(timeout):
		return fromChild{}, fmt.Errorf("attack: the attacking process says nothing after %v", timeout)
	case <-ctx.Done():
		return fromChild{}, context.Cause(ctx)
	}
}

// send sends a line to the child.
func (c *child) send(line fromParent) error {
	if err := json.NewEncoder(c.in).Encode(line); err != nil {
		return fmt.Errorf("attack: the attacking process takes no command: %w", err)
	}
	return nil
}

// stop kills the child.
func (c *child) stop() {
	c.in.Close()
	_ = c.cmd.Process.Kill() // fails if it has ended
	for range c.lines {
	}
	_ = c.cmd.Wait() // killed
}

// run runs one attack against a server. In a control the innocent has a server of its own.
func (r *runner) run(ctx context.Context, path string, row attack, control bool) (h half, err error) {
	c, err := r.startChild(ctx, row)
	if err != nil {
		return h, err
	}
	defer c.stop()
	fake := ""
	if row.fake != nil {
		line, err := c.next(ctx, startTimeout)
		if err != nil {
			return h, err
		}
		fake = line.Fake
	}
	target, err := startServer(ctx, path, r.config, row.spec, fake)
	if err != nil {
		return h, err
	}
	defer target.stop()
	asked, want := target, row.want
	if control {
		spec := row.spec
		want = exactly
		if row.fake != nil {
			spec = serverSpec{}
		}
		if asked, err = startServer(ctx, path, r.config, spec, fake); err != nil {
			return h, err
		}
		defer asked.stop()
	}
	stat, err := dial(target.addr)
	if err != nil {
		return h, err
	}
	defer stat.Close()
	if err := c.send(fromParent{Server: target.addr, Metrics: target.metrics}); err != nil {
		return h, err
	}
	line, err := c.next(ctx, attackTimeout)
	if err == nil && line.Error != "" {
		err = errors.New(line.Error)
	}
	if err != nil {
		return h, fmt.Errorf("%s cannot be prepared: %w", row.name, err)
	}
	ranks := row.ranks
	if ranks == nil {
		ranks = []netproto.GroupRank{{}}
	}
	innocent, err := newInnocent(asked.addr, ranks, want)
	if err != nil {
		return h, err
	}
	defer innocent.close()
	if err := innocent.prepare(); err != nil {
		return h, err
	}
	return h, r.measure(ctx, &h, c, target, stat, innocent, control)
}

const (
	lead  = 300 * time.Millisecond // of the innocent before the attack
	trail = 500 * time.Millisecond // that still counts behind it
)

// measure runs the attack of a child that is ready, while the innocent asks.
func (r *runner) measure(ctx context.Context, h *half, c *child, target *serverProcess, stat net.Conn, innocent *innocent, control bool) error {
	before, err := readStat(stat, startTimeout)
	if err != nil {
		return err
	}
	target.resetPeak()
	h.rssBefore, _ = target.memory()
	innocent.start()
	time.Sleep(lead)
	begin := time.Now()
	if err := c.send(fromParent{Go: true}); err != nil {
		return err
	}
	line, err := c.next(ctx, attackTimeout+r.duration+r.hold)
	if err != nil {
		return err
	}
	end := time.Now().Add(trail)
	h.sent, h.attackError = line.sentReport, line.Error
	time.Sleep(trail)
	after, err := readStat(stat, startTimeout)
	if err == nil {
		h.counters = changes(before, after)
		h.connections = after.Connections - 1 // the tool's own
		if !control {
			h.connections -= innocentConns
		}
	}
	_, h.rssPeak = target.memory()
	h.stats = summarize(innocent.stop(), begin, end)
	if err != nil && !target.died() { // it may be about to
		time.Sleep(time.Second)
	}
	if target.died() {
		h.died = fmt.Sprintf("%v: %s", target.cmd.ProcessState, target.lastLine())
		return nil
	}
	return err
}

// changes returns the counters of failures that differ, and those of the index's entries.
func changes(before, after api.Stat) map[string]int64 {
	pairs := map[string][2]int64{
		"refused":           {before.Refused, after.Refused},
		"accept_errors":     {before.AcceptErrors, after.AcceptErrors},
		"failed":            {before.Failed, after.Failed},
		"dropped":           {before.Dropped, after.Dropped},
		"commands_ignored":  {before.CommandsIgnored, after.CommandsIgnored},
		"anchored_fallback": {before.AnchoredFallbacks, after.AnchoredFallbacks},
		"backend_errors":    {before.BackendErrors, after.BackendErrors},
		"backend_timeouts":  {before.BackendTimeouts, after.BackendTimeouts},
		"backend_rejected":  {before.BackendRejected, after.BackendRejected},
		"entries":           {before.Entries, after.Entries},
		"evicted":           {before.Evicted, after.Evicted},
	}
	for reason := range maps.Keys(after.Closed) {
		pairs["closed."+reason] = [2]int64{before.Closed[reason], after.Closed[reason]}
	}
	changed := map[string]int64{}
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		if p := pairs[name]; p[0] != p[1] {
			changed[name] = p[1] - p[0]
		}
	}
	return changed
}
