package vllm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/coordinator"
)

// measure.ErrLost says that a process could not be started, ended, or did not answer in time. Wrong
// options wrap [measure.ErrOptions] in place of it.
var ErrLost = errors.New("vllm: lost")

// Options says what to measure. OnNote and OnStep must be set, and Master may be empty.
type Options struct {
	Release string        // of vLLM, such as 0.32.0
	Shapes  []Shape       // measured one after the other
	Rounds  int           // for each shape and presence
	Cell    time.Duration // of all rounds, for each of the two, for each shape and presence, about
	Seed    uint64        // of the hashes; 0 takes a random one

	Hitline string // path of the hitline binary
	Python  string // path of a Python that has pyzmq and mooncake
	Master  string // path of mooncake_master; that of Python's mooncake if empty

	Timeout time.Duration                       // longest wait for a start or an answer, beside Cell
	OnNote  func(text string)                   // called with each answer that differs
	OnStep  func(phase string, done, total int) // called before each shape
}

// Validate returns an error that wraps [measure.ErrOptions] unless the options make sense.
func (o Options) Validate() error {
	text := ""
	switch {
	case !slices.Contains(coordinator.Releases(), o.Release):
		text = fmt.Sprintf("vLLM %q; give one of %s", o.Release, strings.Join(coordinator.Releases(), ", "))
	case len(o.Shapes) == 0:
		text = "nothing to measure: no shape has these hashes, tensor-parallel sizes and engines"
	case o.Rounds < 1 || o.Rounds > 1000:
		text = fmt.Sprintf("%d rounds; give 1 to 1000", o.Rounds)
	case o.Cell <= 0:
		text = fmt.Sprintf("%v for each shape and presence; it must be positive", o.Cell)
	case o.Timeout <= 0:
		text = fmt.Sprintf("a timeout of %v; it must be positive", o.Timeout)
	}
	for _, s := range o.Shapes {
		if text == "" {
			text = s.problem()
		}
	}
	if text == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", measure.ErrOptions, text)
}
