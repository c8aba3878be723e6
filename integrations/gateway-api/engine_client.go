package gatewayapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	maxReply = 16 << 20 // bytes: two million token ids
	maxConns = 64       // requests beyond wait, within their deadline
)

// engineClient posts JSON to one URL of an engine, over connections that stay open. Safe for concurrent use.
type engineClient struct {
	url       string
	tokenFile string // with a bearer token, read for each request; empty: there is none
	timeout   time.Duration
	http      http.Client
}

// newEngineClient returns a client of an http or https URL. timeout bounds each request, connecting included. The error does
// not repeat the URL, which may have a password.
func newEngineClient(address, tokenFile string, timeout time.Duration) (*engineClient, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("url must be as http://HOST:PORT, without user and query")
	}
	transport := &http.Transport{
		DialContext: (&net.Dialer{Timeout: time.Second}).DialContext, MaxConnsPerHost: maxConns,
		MaxIdleConnsPerHost: maxConns, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: time.Second,
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &engineClient{address, tokenFile, timeout, http.Client{Transport: transport, CheckRedirect: stay}}, nil
}

// post sends a body, and returns that of the answer. Another status than 200 is an error.
func (c *engineClient) post(ctx context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if c.tokenFile != "" {
		token, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("tokenFile: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := c.http.Do(request)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%s: no answer within %v", c.url, c.timeout)
	}
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(response.Body, maxReply+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", c.url, err)
	case len(reply) > maxReply:
		return nil, fmt.Errorf("%s: an answer of more than %d MiB", c.url, maxReply>>20)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: %s: %.200q", c.url, response.Status, reply)
	}
	return reply, nil
}
