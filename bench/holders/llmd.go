package holders

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// measure.ErrLost says that llm-d's program did not start, or ended.
var ErrLost = errors.New("holders: llm-d is lost")

// startTimeout is the longest wait until the program has started: it is a large one.
const startTimeout = 20 * time.Second

// theirs is llm-d's index, in a process of bench/rivals/llmd.
type theirs struct {
	process  *process.Process
	commands *json.Encoder
	replies  *json.Decoder
	timeout  time.Duration
	before   int64 // heap of the empty index
}

// reply is what the program writes.
type reply struct {
	Prefixes map[string]int `json:"prefixes"`
	Sample   sample         `json:"sample"`
	Heap     int64          `json:"heap"`
}

// startTheirs starts the program on some cores.
func startTheirs(ctx context.Context, o Options, cores []int) (*theirs, error) {
	cmd := exec.Command(o.LLMD, "--holders", strconv.Itoa(o.Holders))
	commands, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", measure.ErrLost, err)
	}
	replies, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", measure.ErrLost, err)
	}
	ready := func(line []byte) (string, bool) { return "", string(line) == "llmd: ready" }
	p, err := process.Start(ctx, cmd, process.Options{Cores: cores, Timeout: startTimeout, Ready: ready})
	if err != nil {
		return nil, err
	}
	s := &theirs{process: p, commands: json.NewEncoder(commands), replies: json.NewDecoder(replies), timeout: o.Timeout}
	if s.before, _, err = s.memory(ctx); err != nil {
		p.Stop()
		return nil, err
	}
	return s, nil
}

func (s *theirs) stop() { s.process.Stop() }

// versionOf returns what the program says of itself.
func versionOf(ctx context.Context, o Options) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	text, err := exec.CommandContext(ctx, o.LLMD, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s --version: %w", measure.ErrOptions, o.LLMD, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// send sends a command that has no answer.
func (s *theirs) send(command any) error {
	if err := s.commands.Encode(command); err != nil {
		return fmt.Errorf("%w: %w", measure.ErrLost, err)
	}
	return nil
}

// ask sends a command and waits for its answer. The program is stopped if it takes too long.
func (s *theirs) ask(ctx context.Context, command any) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	defer context.AfterFunc(ctx, s.process.Stop)()
	var r reply
	err := s.send(command)
	if err == nil {
		err = s.replies.Decode(&r)
	}
	switch {
	case ctx.Err() != nil:
		return r, fmt.Errorf("%w: %w", measure.ErrLost, context.Cause(ctx))
	case errors.Is(err, io.EOF):
		return r, fmt.Errorf("%w: it ended", measure.ErrLost)
	case err != nil && !errors.Is(err, measure.ErrLost):
		return r, fmt.Errorf("%w: %w", measure.ErrLost, err)
	}
	return r, err
}

func (s *theirs) store(holder int, keys []byte) error {
	blocks := make([]uint64, len(keys)/keyLen)
	for i := range blocks {
		blocks[i] = binary.BigEndian.Uint64(keys[i*keyLen:])
	}
	return s.send(map[string]any{"store": map[string]any{"holder": holderName(holder), "blocks": blocks}})
}

func (s *theirs) add(q query) error { return s.send(map[string]any{"query": q.keys()}) }

func (s *theirs) memory(ctx context.Context) (used, stated int64, err error) {
	r, err := s.ask(ctx, map[string]any{"heap": true})
	return r.Heap - s.before, 0, err
}

func (s *theirs) answer(ctx context.Context, query int) (map[string]int, error) {
	r, err := s.ask(ctx, map[string]any{"answer": query})
	return r.Prefixes, err
}

func (s *theirs) measure(ctx context.Context, side string, first, count int, d time.Duration) (sample, error) {
	r, err := s.ask(ctx, map[string]any{"measure": map[string]any{
		"first": first, "count": count, "ns": d.Nanoseconds(), "score": side == LLMD,
	}})
	if err == nil && (r.Sample.Lookups == 0 || r.Sample.Ns <= 0) {
		err = fmt.Errorf("%w: it measured nothing", measure.ErrLost)
	}
	return r.Sample, err
}
