package mooncake

import (
	"context"
	"fmt"
	"net"

	"github.com/hitline/hitline/internal/ctxerr"
)

// dialMaster connects to a master and negotiates the form. Go sets TCP_NODELAY on every TCP
// connection.
func (c *Client) dialMaster(parent context.Context, addr string) (*conn, error) {
	ctx, cancel := context.WithTimeout(parent, c.cfg.DialTimeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		if isTimeout(err) || ctxerr.Of(ctx) != nil {
			return nil, fmt.Errorf("no answer to the attempt to connect within %v", c.cfg.DialTimeout)
		}
		return nil, explain(err, false)
	}
	cn := &conn{net: nc, addr: addr}
	if err := cn.run(ctx, func(cn *conn) error { return cn.negotiate(c.cfg.Tenant) }); err != nil {
		cn.close()
		if isTimeout(err) && ctxerr.Of(parent) == nil {
			return nil, fmt.Errorf("connected, but no answer within %v: is it the HTTP admin port (9003 by default)? RPC is on 50051", c.cfg.DialTimeout)
		}
		return nil, explain(err, false)
	}
	return cn, nil
}
