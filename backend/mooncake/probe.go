package mooncake

import (
	"context"
	"io"
	"net"
	"time"
)

// probeTimeout bounds speaksHTTP.
const probeTimeout = 200 * time.Millisecond

// speaksHTTP tells whether an address that lets a question wait answers one of
// HTTP. The admin port does: it takes the question for the beginning of a request
// and waits for the rest.
func speaksHTTP(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(longAgo) })()
	if _, err := io.WriteString(nc, "GET /health HTTP/1.0\r\n\r\n"); err != nil {
		return false
	}
	start := make([]byte, 5)
	_, err = io.ReadFull(nc, start)
	return err == nil && string(start) == "HTTP/"
}
