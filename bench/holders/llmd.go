package holders

import (
	"context"
	"encoding/binary"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// theirs is llm-d's index, in a process of bench/rivals/llmd.
type theirs struct {
	*process.Child
	before int64 // heap of the empty index
}

// reply is what the program writes.
type reply struct {
	Prefixes map[string]int `json:"prefixes"`
	Sample   sample         `json:"sample"`
	Heap     int64          `json:"heap"`
}

// startTheirs starts the program.
func startTheirs(ctx context.Context, o Options) (*theirs, error) {
	cmd := exec.Command(o.LLMD, "--holders", strconv.Itoa(o.Holders))
	child, err := process.StartChild(ctx, "llm-d's program", cmd, process.Options{Cores: o.Cores, Timeout: o.Timeout})
	if err != nil {
		return nil, err
	}
	s := &theirs{Child: child}
	s.before, _, err = s.memory(ctx)
	return s, err
}

// ask sends a command that has an answer, and awaits it.
func (s *theirs) ask(ctx context.Context, name string, command any) (r reply, err error) {
	err = s.Do(ctx, 0, map[string]any{name: command}, &r)
	return r, err
}

func (s *theirs) store(ctx context.Context, holder int, keys []byte) error {
	blocks := make([]uint64, len(keys)/keyLen)
	for i := range blocks {
		blocks[i] = binary.BigEndian.Uint64(keys[i*keyLen:])
	}
	return s.Send(ctx, map[string]any{"store": map[string]any{"holder": holderName(holder), "blocks": blocks}})
}

func (s *theirs) add(ctx context.Context, q query) error {
	return s.Send(ctx, map[string]any{"query": q.keys()})
}

func (s *theirs) memory(ctx context.Context) (used, stated int64, err error) {
	r, err := s.ask(ctx, "heap", true)
	return r.Heap - s.before, 0, err
}

func (s *theirs) answer(ctx context.Context, query int) (map[string]int, error) {
	r, err := s.ask(ctx, "answer", query)
	return r.Prefixes, err
}

func (s *theirs) measure(ctx context.Context, score bool, first, count int, d time.Duration) (sample, error) {
	r, err := s.ask(ctx, "measure", map[string]any{"first": first, "count": count, "ns": d.Nanoseconds(), "score": score})
	if err == nil && (r.Sample.Lookups == 0 || r.Sample.Ns <= 0) {
		err = fmt.Errorf("%w: llm-d's program measured nothing", measure.ErrLost)
	}
	return r.Sample, err
}
