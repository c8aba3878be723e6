package mooncake

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/ctxerr"
)

// errListKeys means that no admin address lists the keys of the store.
var errListKeys = errors.New("mooncake: the keys cannot be listed")

const (
	// maxKeyBytes bounds the length of a key that Keys reads.
	maxKeyBytes = 64 << 10
	// maxListBytes bounds the part of the list of keys that Keys reads: 100,000 keys of 160
	// bytes.
	maxListBytes = 16 << 20
	// maxHeaderBytes bounds the HTTP header of an answer.
	maxHeaderBytes = 64 << 10
)

// Keys returns at most limit keys of the store, from the first address of Config.Admin that
// lists them, and no more than are in the first 16 MiB of the list. complete is true if the
// store has no others. The master lists only keys of the tenant "default". It walks all of them
// for each call, so call it rarely. It leases nothing.
func (c *Client) Keys(ctx context.Context, limit int) (keys []string, complete bool, err error) {
	if err := c.beginCall(); err != nil {
		return nil, false, err
	}
	defer c.calls.Done()
	ctx, cancel := c.untilClosed(ctx)
	defer cancel()
	errs := make([]error, 0, len(c.cfg.Admin))
	for _, addr := range c.cfg.Admin {
		keys, complete, err := listKeys(ctx, addr, limit)
		if err == nil {
			return keys, complete, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", addr, err))
	}
	if len(errs) == 0 {
		return nil, false, fmt.Errorf("%w: no admin address is configured", errListKeys)
	}
	return nil, false, c.explainClosed(fmt.Errorf("%w: %w", errListKeys, joinedErrors(errs)))
}

// listKeys returns at most limit keys from one master.
func listKeys(ctx context.Context, addr string, limit int) (keys []string, complete bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/get_all_keys", nil)
	if err != nil {
		return nil, false, err
	}
	began := time.Now()
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeaderBytes}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, false, explainAdmin(ctx, began, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, false, fmt.Errorf("it answers HTTP status %d: is it a standby?", response.StatusCode)
	}
	body := &io.LimitedReader{R: response.Body, N: maxListBytes}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxKeyBytes)
	for lines.Scan() {
		if len(keys) == limit {
			return keys, false, nil
		}
		if key := strings.TrimSuffix(lines.Text(), "\r"); key != "" {
			keys = append(keys, key)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, false, explainAdmin(ctx, began, err)
	}
	if body.N == 0 { // there are more; the last one may have been cut
		return keys[:max(0, len(keys)-1)], false, nil
	}
	return keys, true, nil
}

// explainAdmin explains an error of an admin address.
func explainAdmin(ctx context.Context, began time.Time, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens there: %w", syscall.ECONNREFUSED)
	case ctxerr.Of(ctx) != nil:
		return ctxerr.Late(ctxerr.Of(ctx), began, "no answer")
	case closedByPeer(err), strings.Contains(err.Error(), "malformed HTTP"):
		return fmt.Errorf("%w: it does not speak HTTP: is it the RPC port? The admin port is 9003 by default", backend.ErrReply)
	}
	return err
}
