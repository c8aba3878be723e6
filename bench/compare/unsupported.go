//go:build !linux

package compare

import (
	"context"
	"fmt"

	"github.com/hitline/hitline/bench/measure"
)

// Run fails: pinning is not to be had here.
func Run(context.Context, Options) (Report, error) {
	return Report{}, fmt.Errorf("%w: the comparison is made on Linux only", measure.ErrOptions)
}
