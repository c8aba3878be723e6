//go:build linux

package holders

import (
	"context"
	"encoding/binary"
	"fmt"
	"os/exec"
	"strconv"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// Rival is a program with another index, which reads commands and writes replies: one of bench/rivals.
type Rival struct{ Name, Path string }

// rival is the index of a program that runs.
type rival struct {
	*process.Child
	name, version string
	before        int64 // heap of the empty index
}

// reply is what the program writes.
type reply struct {
	Prefixes map[string]int `json:"prefixes,omitempty"` // blocks, by holder
	Ns       int64          `json:"ns,omitempty"`       // that a query took
	Heap     int64          `json:"heap,omitempty"`     // bytes in use
	Version  string         `json:"version,omitempty"`  // of the index, with Heap
}

// start starts the program.
func (p Rival) start(ctx context.Context, o Options) (*rival, error) {
	cmd := exec.Command(p.Path, "--holders", strconv.Itoa(o.Holders))
	child, err := process.StartChild(ctx, p.Name+"'s program", cmd, process.Options{Cores: o.core, Timeout: o.Timeout})
	if err != nil {
		return nil, err
	}
	s := &rival{Child: child, name: p.Name}
	r, err := s.ask(ctx, "heap", true)
	s.before, s.version = r.Heap, r.Version
	return s, err
}

// ask sends a command that has an answer, and awaits it.
func (s *rival) ask(ctx context.Context, name string, command any) (r reply, err error) {
	err = s.Do(ctx, 0, map[string]any{name: command}, &r)
	return r, err
}

func (s *rival) store(ctx context.Context, holder int, parent, keys []byte) error {
	blocks := make([]uint64, len(keys)/keyLen)
	for i := range blocks {
		blocks[i] = binary.BigEndian.Uint64(keys[i*keyLen:])
	}
	event := map[string]any{"holder": holderName(holder), "blocks": blocks}
	if parent != nil {
		event["parent"] = binary.BigEndian.Uint64(parent)
	}
	return s.Send(ctx, map[string]any{"store": event})
}

func (s *rival) add(ctx context.Context, q query) error {
	return s.Send(ctx, map[string]any{"query": q.keys()})
}

func (s *rival) memory(ctx context.Context) (int64, error) {
	r, err := s.ask(ctx, "heap", true)
	return r.Heap - s.before, err
}

func (s *rival) answer(ctx context.Context, query int) (map[string]int, error) {
	r, err := s.ask(ctx, "answer", query)
	return r.Prefixes, err
}

func (s *rival) measure(ctx context.Context, query int) (ns int64, err error) {
	r, err := s.ask(ctx, "measure", query)
	if err == nil && r.Ns <= 0 {
		err = fmt.Errorf("%w: %s's program measured nothing", measure.ErrLost, s.name)
	}
	return r.Ns, err
}
