package mooncake

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"

	"github.com/hitline/hitline/backend"
)

// ErrAdmin says that none of the admin addresses lists the store's keys.
var ErrAdmin = errors.New("mooncake: the keys cannot be listed")

// mostLine bounds a key that Keys reads.
const mostLine = 64 << 10

// Keys returns some keys of the store, at most that many, from the first of
// Config.Admin that lists them; complete says that there are no others. The master
// lists those of the tenant "default" only, and walks all of them for it: this is for
// a look now and then. It leases nothing.
func (c *Client) Keys(ctx context.Context, most int) (keys []string, complete bool, err error) {
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	why := make([]error, 0, len(c.cfg.Admin))
	for _, addr := range c.cfg.Admin {
		keys, complete, err := listKeys(ctx, addr, most)
		if err == nil {
			return keys, complete, nil
		}
		why = append(why, fmt.Errorf("%s: %w", addr, err))
	}
	if len(why) == 0 {
		return nil, false, fmt.Errorf("%w: no admin address is configured", ErrAdmin)
	}
	return nil, false, c.blame(fmt.Errorf("%w: %w", ErrAdmin, joined(why)))
}

// listKeys asks one master.
func listKeys(ctx context.Context, addr string, most int) (keys []string, complete bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/get_all_keys", nil)
	if err != nil {
		return nil, false, err
	}
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, false, explainAdmin(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, false, fmt.Errorf("it answers HTTP status %d: is it a standby?", response.StatusCode)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, mostLine)
	for lines.Scan() {
		if len(keys) == most {
			return keys, false, nil
		}
		if key := strings.TrimSuffix(lines.Text(), "\r"); key != "" {
			keys = append(keys, key)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, false, explainAdmin(ctx, err)
	}
	return keys, true, nil
}

// explainAdmin says what is wrong with an admin address.
func explainAdmin(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens there: %w", syscall.ECONNREFUSED)
	case over(ctx) != nil:
		return fmt.Errorf("no answer: %w", over(ctx))
	case closedByPeer(err), strings.Contains(err.Error(), "malformed HTTP"):
		return fmt.Errorf("%w: it does not speak HTTP: is it the RPC port? The admin port is 9003 by default", backend.ErrReply)
	}
	return err
}
