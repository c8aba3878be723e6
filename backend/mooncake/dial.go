package mooncake

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hitline/hitline/internal/ctxerr"
	"github.com/hitline/hitline/internal/requesterror"
)

// maxAddrs bounds the addresses of one name that are dialled.
const maxAddrs = 16

// resolve returns the addresses ip:port of a master by family, that of current first. A name may have an IPv4
// and an IPv6 address of each master: as two masters, a leader that hangs would fail over to itself. So the
// second family is for when none of the first answers.
func (c *Client) resolve(ctx context.Context, master, current string) (families [][]string, err error) {
	defer requesterror.Recover(&err)
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return [][]string{{master}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	ips, err := c.cfg.lookupHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("its addresses are not known: %w", err)
	}
	for _, ip := range ips[:min(len(ips), maxAddrs)] {
		addr := net.JoinHostPort(ip, port)
		i := slices.IndexFunc(families, func(addrs []string) bool { return isIPv6(addrs[0]) == isIPv6(addr) })
		if i < 0 {
			i, families = len(families), append(families, nil)
		}
		families[i] = append(families[i], addr)
	}
	if len(families) == 2 && slices.Contains(families[1], current) {
		slices.Reverse(families)
	}
	return families, nil
}

// isIPv6 reports the family of an address ip:port.
func isIPv6(addr string) bool { return strings.HasPrefix(addr, "[") }

// dialMaster connects to a master and negotiates the form. Go sets TCP_NODELAY on every TCP
// connection.
func (c *Client) dialMaster(ctx context.Context, addr string) (cn *conn, err error) {
	defer requesterror.Recover(&err)
	limit := c.cfg.DialTimeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline).Round(time.Millisecond))
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	ask := c.identityQuestionFor(addr)
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctxerr.Explain(context.Canceled, errors.New("the attempt to connect was given up"))
		}
		if isTimeout(err) || ctxerr.Of(ctx) != nil {
			return nil, fmt.Errorf("no answer to the attempt to connect within %v", limit)
		}
		c.recordDialFailure(addr, false, err)
		return nil, explain(err, false)
	}
	cn = &conn{net: nc.(*net.TCPConn), replies: bufio.NewReader(nc), addr: addr}
	cn.stopWatching = context.AfterFunc(c.ctx, func() { _ = nc.Close() })
	if err := cn.run(ctx, func(cn *conn) error { return cn.negotiate(c.cfg.Tenant, ask) }); err != nil {
		cn.close()
		c.recordDialFailure(addr, true, err)
		if isTimeout(err) {
			return nil, fmt.Errorf("connected, but no answer within %v: is it the HTTP admin port (9003 by default)? RPC is on 50051", limit)
		}
		return nil, explain(err, false)
	}
	return cn, nil
}
