package client

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hitline/hitline/lookup/api"
)

// backAfter is how long a client stays with another entry of its list than the one it begins with.
const backAfter = time.Minute

// dialer makes connections to one server, or to the first that can be reached of a list. The transport's writer uses
// it, but for dialFirst.
type dialer struct {
	entries     []entry
	token       tokenFunc // nil for none
	description []byte    // of the pool, sent on each connection; nil for none

	pause  time.Duration               // redialPause
	pauses *backoff.ExponentialBackOff // of an outage

	first    int       // where the client begins
	at       int       // what is dialed next, and what is connected
	failures int       // in a row, less than there are entries
	leftAt   time.Time // when it went on from first, or tried to go back; valid if at is not first
}

// entry is one server of a list.
type entry struct {
	address string
	open    func(ctx context.Context) (net.Conn, error)
}

// dialer returns the dialer of a configuration for an address, or a list of them, or ErrRequest.
func (c config) dialer(list string) (*dialer, error) {
	description, poolErr := c.description()
	switch {
	case poolErr != nil:
		return nil, fmt.Errorf("%w: pool: %w", ErrRequest, poolErr)
	case c.tokenErr != nil:
		return nil, fmt.Errorf("%w: %w", ErrRequest, c.tokenErr)
	}
	var entries []entry
	for _, addr := range api.SplitList(list) {
		network, target, err := api.SplitAddress(api.AddPort(addr, api.DefaultPort))
		if err != nil {
			return nil, fmt.Errorf("%w: address %w", ErrRequest, err)
		}
		dial := c.dial
		if network == "tls" {
			dial = dial.overTLS(c.tls)
		}
		entries = append(entries, entry{addr, func(ctx context.Context) (net.Conn, error) { return dial(ctx, network, target) }})
	}
	d := newDialer(entries...)
	d.token, d.description = c.token, description
	d.first = c.pool.choose(len(entries))
	d.at = d.first
	return d, nil
}

// choose returns with which of n entries the clients of a pool begin: all with the same. Without a pool, or for the
// server's own, it is the first. The Python client does the same for pools with a name.
func (p *poolRequest) choose(n int) int {
	var key []byte
	switch {
	case p == nil:
	case p.Name != nil:
		key = []byte(*p.Name)
	default: // the name follows from the description
		key, _ = json.Marshal(p.Pool) // config.description has reported the error
	}
	if len(key) == 0 {
		return 0
	}
	sum := sha256.Sum256(key)
	return int(binary.BigEndian.Uint64(sum[:]) % uint64(n))
}

// newDialer returns a dialer that makes connections to the first of the entries that can be reached.
func newDialer(entries ...entry) *dialer {
	return &dialer{entries: entries, pause: redialPause, pauses: newPauses()}
}

// dial makes a connection within timeout, and returns the token to send on it. It goes on to the next entry until each
// has failed once since a server answered.
func (d *dialer) dial(ctx context.Context, timeout time.Duration) (nc net.Conn, token string, err error) {
	for {
		nc, token, err = d.dialEntry(ctx, d.at, timeout/time.Duration(len(d.entries)))
		if err == nil || ctx.Err() != nil || d.failed() {
			return nc, token, err
		}
	}
}

// failed goes on to the next entry, and reports whether all have failed.
func (d *dialer) failed() bool {
	if d.at == d.first {
		d.leftAt = time.Now()
	}
	d.at = (d.at + 1) % len(d.entries)
	d.failures = (d.failures + 1) % len(d.entries)
	return d.failures == 0
}

// backDue reports whether to go back to the first entry, and not again for a while.
func (d *dialer) backDue() bool {
	if d.at == d.first || time.Since(d.leftAt) < backAfter {
		return false
	}
	d.leftAt = time.Now()
	return true
}

// dialEntry makes a connection to an entry.
func (d *dialer) dialEntry(ctx context.Context, i int, timeout time.Duration) (nc net.Conn, token string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if d.token != nil {
		token, err = d.token()
	}
	if err == nil {
		nc, err = d.entries[i].open(ctx)
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) { // which is of no caller
		err = fmt.Errorf("%w: %v", os.ErrDeadlineExceeded, err) //nolint:errorlint // see above
	}
	return nc, token, err
}
