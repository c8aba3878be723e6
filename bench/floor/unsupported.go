//go:build !linux

package floor

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

var errLinux = fmt.Errorf("%w: the floor is measured on Linux only", measure.ErrOptions)

// Run fails: pinning is not to be had here.
func Run(context.Context, Options) (Report, error) { return Report{}, errLinux }

// DialBlocking fails.
func DialBlocking(time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) { return nil, errLinux }
}

// ServeFloor fails.
func ServeFloor(io.Writer, int, int) error { return errLinux }
