//go:build !linux

package scale

import (
	"context"
	"fmt"

	"github.com/hitline/hitline/bench/measure"
)

// Run fails: package load runs on Linux only.
func Run(context.Context, Options) (Report, error) {
	return Report{}, fmt.Errorf("%w: scale is measured on Linux only", measure.ErrOptions)
}
