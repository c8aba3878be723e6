package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Client asks one server. It is safe for concurrent use.
type Client struct {
	address string
	config
	http http.Client
}

// New returns a client of the server at an address: http://host:port, or https://host:port. It connects when it is asked.
func New(address string, opts ...Option) (*Client, error) {
	c := &Client{address: strings.TrimSuffix(address, "/"), config: newConfig(opts)}
	u, err := url.Parse(c.address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" {
		return nil, errors.New("the address must be http://host:port or https://host:port, without user and path") // it may have a password
	}
	if c.tls != nil && u.Scheme == "http" {
		return nil, fmt.Errorf("TLS is for an address of https://, not for %s", c.address)
	}
	c.http = newHTTP(c.tls)
	return c, nil
}

// Close closes the connections that no request uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Query asks which engines have most of a prompt.
func (c *Client) Query(ctx context.Context, q *Query) (*Answer, error) {
	body, err := q.encode()
	if err != nil {
		return nil, err
	}
	reply, err := c.send(ctx, http.MethodPost, "/query", body)
	if err != nil {
		return nil, err
	}
	a, err := decodeAnswer(reply)
	if err != nil {
		return nil, c.badReply(err)
	}
	return a, nil
}

// Predict says that a request with a prompt was sent to an engine: its blocks count for the engine until its events say so,
// or for the server's predict_ttl. It needs the permission store.
func (c *Client) Predict(ctx context.Context, p *Prediction) error {
	body, err := p.encode()
	if err != nil {
		return err
	}
	_, err = c.send(ctx, http.MethodPost, "/predict", body)
	return err
}

// Services asks for the state of the models and of the sources that are followed.
func (c *Client) Services(ctx context.Context) (*Services, error) {
	reply, err := c.send(ctx, http.MethodGet, "/services", nil)
	if err != nil {
		return nil, err
	}
	s, err := decodeServices(reply)
	if err != nil {
		return nil, c.badReply(err)
	}
	return s, nil
}
