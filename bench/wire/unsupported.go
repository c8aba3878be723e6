//go:build !linux

package wire

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// Wait says how long a call on a socket waits.
type Wait struct {
	Bound time.Duration
	Again bool
}

// Socket is not there on this system: no function returns one.
type Socket struct{}

// Vector is a piece of what is written.
type Vector struct{}

// VectorOf returns nothing.
func VectorOf([]byte) Vector { return Vector{} }

// Take closes conn and fails.
func Take(conn net.Conn, _ Wait) (Socket, error) {
	conn.Close()
	return Socket{}, ErrUnsupported
}

// Waits returns false.
func (Socket) Waits() bool { return false }

// Close does nothing.
func (Socket) Close() {}

// Shutdown does nothing.
func (Socket) Shutdown() {}

// Read fails.
func (Socket) Read([]byte) (int, error) { return 0, ErrUnsupported }

// Write fails.
func (Socket) Write([]byte) (int, error) { return 0, ErrUnsupported }

// WriteAll fails.
func (Socket) WriteAll([]Vector) error { return ErrUnsupported }

// WriteOnce fails.
func (Socket) WriteOnce(v []Vector) ([]Vector, error) { return v, ErrUnsupported }

func newConn(_ context.Context, conn net.Conn, _ time.Duration) (*Conn, error) {
	conn.Close()
	return nil, ErrUnsupported
}

// Poller is not there on this system.
type Poller struct{}

// NewPoller fails.
func NewPoller(int) (*Poller, error) { return nil, ErrUnsupported }

// Add fails.
func (*Poller) Add(int, Socket) error { return ErrUnsupported }

// Watch fails.
func (*Poller) Watch(int, Socket, bool) error { return ErrUnsupported }

// Wait returns nothing.
func (*Poller) Wait(int64, bool) []int { return nil }

// Close does nothing.
func (*Poller) Close() {}

// SetTimerSlack does nothing.
func SetTimerSlack() {}

// Sleep does nothing.
func Sleep(int64) {}

// Relays are not there on this system.
type Relays struct{ sync.WaitGroup }

// Over returns dial.
func (*Relays) Over(dial DialFunc, _ *tls.Config) DialFunc { return dial }
