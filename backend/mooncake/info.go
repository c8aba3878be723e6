package mooncake

import (
	"context"
	"fmt"
	"time"

	"github.com/hitline/hitline/backend"
)

// Info says whom a client talks to. It is for people.
type Info struct {
	Leader  string        // address of the master that answered
	Version string        // what it says of itself, which does not tell the form
	Form    Form          // of its arguments
	RTT     time.Duration // of a question for no key
}

// Info asks all masters anew who leads, and the leader what it is. If none leads,
// the error says why of each.
func (c *Client) Info(ctx context.Context) (Info, error) {
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return Info{}, err
	}
	defer leave()
	cn, err := c.askAll(ctx, "")
	if err != nil {
		return Info{}, c.blame(fmt.Errorf("mooncake: %w: %w", backend.ErrUnavailable, err))
	}
	defer cn.close()
	info := Info{Leader: cn.addr, Form: cn.form}
	err = cn.during(ctx, func(cn *conn) (err error) {
		begun := time.Now()
		if err = cn.exist(nil, c.cfg.Tenant, nil); err != nil {
			return err
		}
		info.RTT = time.Since(begun)
		info.Version, err = cn.version()
		return err
	})
	if err != nil {
		return info, c.blame(unavailable(cn.addr, explain(err, true)))
	}
	return info, nil
}
