package floor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// idleCPU returns the milliseconds of CPU that a server uses in a second without
// requests.
func idleCPU(ctx context.Context, p *process.Process) (*float64, error) {
	before, err := p.CPU()
	if err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	start := time.Now()
	select {
	case <-time.After(time.Second):
	case <-p.Exited():
		return nil, fmt.Errorf("%w: %s ended (%s)", measure.ErrLost, p.Path(), p.Ended())
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	after, err := p.CPU()
	if err != nil {
		return nil, errors.Join(measure.ErrLost, err)
	}
	used := measure.Round3(float64(after-before) / float64(time.Since(start)) * 1000)
	return &used, nil
}
