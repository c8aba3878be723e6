package mooncake

import (
	"context"
	"fmt"
	"time"

	"github.com/hitline/hitline/backend"
)

// Info describes the leader, for an operator.
type Info struct {
	Leader  string        // address of the leader
	Version string        // as the master reports it; the form does not follow from it
	Form    Form          // of the master's arguments
	RTT     time.Duration // round trip of a request for no keys
	Probes  bool          // a peek leases nothing
}

// Info dials all masters to find the leader, and describes it. If there is no leader, the
// error has the reason of each master.
func (c *Client) Info(ctx context.Context) (Info, error) {
	if err := c.beginCall(); err != nil {
		return Info{}, err
	}
	defer c.calls.Done()
	cn, err := c.dialMasters(ctx, "")
	if err != nil {
		return Info{}, c.explainClosed(fmt.Errorf("mooncake: %w: %w", backend.ErrUnavailable, err))
	}
	defer cn.close()
	info := Info{Leader: cn.addr, Form: cn.form}
	err = cn.run(ctx, func(cn *conn) (err error) {
		start := time.Now()
		if err = cn.askNothing(c.cfg.Tenant); err != nil {
			return err
		}
		info.RTT = time.Since(start)
		if info.Version, err = cn.version(); err != nil || cn.form != FormTenant {
			return err
		}
		_, err = cn.batchExist(formProbe, backend.KeyList(nil), 0, 0, c.cfg.Tenant, nil)
		if info.Probes = err == nil; isUnknownCall(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return info, c.explainClosed(wrapUnavailable(cn.addr, explain(err, true)))
	}
	return info, nil
}
