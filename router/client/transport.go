package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// maxConns bounds the connections. Further requests wait, within their time.
	maxConns = 64
	// maxReply bounds a reply in bytes: some 100,000 engines, or hints of a million blocks.
	maxReply = 32 << 20
	// maxRefusal bounds that of a refusal.
	maxRefusal = 64 << 10
)

// newHTTP returns what sends requests. It has no proxy and follows no redirect, which would see the token.
func newHTTP(cfg *tls.Config) http.Client {
	return http.Client{
		Transport: &http.Transport{
			TLSClientConfig: cfg, MaxConnsPerHost: maxConns, MaxIdleConnsPerHost: maxConns, IdleConnTimeout: time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// send sends a request, and returns the body of the reply. A request over a connection that the server has closed meanwhile is
// sent again over another: it changes nothing that the first one would not.
func (c *Client) send(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.address, err)
	}
	token, err := c.token()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConnect, err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header["Idempotency-Key"] = nil // net/http sends none, and may send the request again
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.connectError(ctx, err)
	}
	defer response.Body.Close() // it is read to its end, or the connection is closed
	limit := maxReply
	if response.StatusCode != http.StatusOK {
		limit = maxRefusal
	}
	reply, err := io.ReadAll(io.LimitReader(response.Body, int64(limit)+1))
	switch {
	case err != nil:
		return nil, c.answerError(ctx, err)
	case len(reply) > limit:
		return nil, fmt.Errorf("%s: %w: more than %d bytes", c.address, ErrReply, limit)
	case response.StatusCode != http.StatusOK:
		return nil, c.refusal(response, reply)
	}
	return reply, nil
}
