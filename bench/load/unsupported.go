//go:build !linux

package load

import (
	"context"
	"fmt"

	"github.com/hitline/hitline/bench/measure"
)

// Run fails: the connections are served by system calls of Linux.
func Run(context.Context, Options) (Report, error) {
	return Report{}, fmt.Errorf("%w: load is made on Linux only", measure.ErrOptions)
}
