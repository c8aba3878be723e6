package mooncake

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// dialMaster connects to a master and negotiates the form. Go sets TCP_NODELAY on every TCP
// connection.
func (c *Client) dialMaster(parent context.Context, addr string) (*conn, error) {
	ctx, cancel := context.WithTimeout(parent, c.cfg.DialTimeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		if isTimeout(err) || ctxErr(ctx) != nil {
			return nil, fmt.Errorf("no answer to the attempt to connect within %v", c.cfg.DialTimeout)
		}
		return nil, explain(err, false)
	}
	cn := &conn{net: nc, addr: addr}
	stopProbe := c.probeHTTPAfterDelay(ctx, cancel, addr)
	err = cn.run(ctx, func(cn *conn) error { return cn.negotiate(c.cfg.Tenant) })
	isHTTP := stopProbe()
	if err != nil {
		cn.close()
		if isHTTP {
			return nil, errHTTP
		}
		return nil, c.explainTimeout(parent, addr, explain(err, false))
	}
	return cn, nil
}

// probeHTTPAfterDelay starts a timer. When it fires, the address is probed for HTTP, and
// cancel is called if it speaks HTTP. stop stops the timer or waits for the probe. It
// returns true if the address speaks HTTP.
func (c *Client) probeHTTPAfterDelay(ctx context.Context, cancel func(), addr string) (stop func() bool) {
	isHTTP, done := false, make(chan struct{})
	timer := time.AfterFunc(min(probeDelay, c.cfg.DialTimeout/2), func() {
		defer close(done)
		if isHTTP = speaksHTTP(ctx, addr); isHTTP {
			cancel()
		}
	})
	return func() bool {
		if timer.Stop() {
			return false
		}
		<-done
		return isHTTP
	}
}

// probeDelay is how long a master's first answer may take before the address is probed for
// HTTP. A master answers within a millisecond.
const probeDelay = 200 * time.Millisecond

// explainTimeout explains a timeout of the first answer: it probes the address for HTTP.
func (c *Client) explainTimeout(ctx context.Context, addr string, err error) error {
	switch {
	case !isTimeout(err) || ctxErr(ctx) != nil:
		return err
	case speaksHTTP(ctx, addr):
		return errHTTP
	}
	return fmt.Errorf("connected, but no answer within %v", c.cfg.DialTimeout)
}

// probeTimeout bounds one probe for HTTP.
const probeTimeout = 200 * time.Millisecond

// speaksHTTP reports whether an address answers an HTTP request. The admin port of a master
// does. It reads an RPC request as the start of an HTTP one and waits for the rest.
func speaksHTTP(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(aLongTimeAgo) })()
	if _, err := io.WriteString(nc, "GET /health HTTP/1.0\r\n\r\n"); err != nil {
		return false
	}
	start := make([]byte, 5)
	_, err = io.ReadFull(nc, start)
	return err == nil && string(start) == "HTTP/"
}
