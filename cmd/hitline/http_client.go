package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
	"github.com/hitline/hitline/lookup/client"
)

const (
	// maxHTTPReply bounds a reply over HTTP in bytes: some 300,000 engines.
	maxHTTPReply = 64 << 20
	// maxHTTPRefusal bounds that of a refusal.
	maxHTTPRefusal = 64 << 10
	// maxHTTPReason is how much of its reason is printed, in characters.
	maxHTTPReason = 512
)

// addHTTPFlags defines the flags for a request over HTTP.
func (t *target) addHTTPFlags(cmd *cobra.Command) {
	addJSONFlag(cmd, &t.json)
	cli.TopicFlags(cmd.Flags(), connectionTopic, func(group *pflag.FlagSet) {
		t.secure.AddHTTPAddress(group)
		t.addTimeout(group)
		t.secure.Add(group)
	})
	t.setWarn(cmd)
}

// checkHTTP is check for a request over HTTP.
func (t *target) checkHTTP() error {
	if err := t.checkTimeout(); err != nil {
		return err
	}
	return t.useAddress(t.secure.HTTPAddress())
}

// askHTTP sends a request, a POST if it has a body, which is sent as JSON. It returns the body of the reply. The flags'
// timeout bounds it.
func (t *target) askHTTP(ctx context.Context, path string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	reply, err := t.sendHTTP(ctx, path, body)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = cli.WithClass(fmt.Errorf("%s: no answer within %v", t.connect, t.timeout), client.ErrNoAnswer)
	}
	return reply, err
}

func (t *target) sendHTTP(ctx context.Context, path string, body any) ([]byte, error) {
	connection, err := t.loadConnection()
	if err != nil {
		return nil, err
	}
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		if text, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("cannot encode the request: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, t.connect+path, bytes.NewReader(text))
	if err != nil {
		return nil, usagef("%s: %v", t.connect, err)
	}
	request.Header.Set("Content-Type", "application/json")
	if token := connection.Token(); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: connection.TLS} // without a proxy: it would see the token
	defer transport.CloseIdleConnections()
	// A redirect would take the token elsewhere.
	c := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := c.Do(request)
	if err != nil {
		if of, ok := errors.AsType[*url.Error](err); ok {
			err = of.Err // the text of a url.Error has the address, too
		}
		if errors.Is(err, http.ErrSchemeMismatch) {
			err = fmt.Errorf("%s: the server has no TLS, so give http://", t.connect)
		} else if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			err = fmt.Errorf("%s: the server does not speak HTTP; give the address of router.listen, with https:// if it has TLS", t.connect)
		} else {
			err = connectflags.ConnectError(t.connect, err, "hitline serve with router.listen starts one")
		}
		return nil, cli.WithClass(err, client.ErrConnect)
	}
	defer response.Body.Close() // it is read to its end, or the connection is closed
	limit := maxHTTPReply
	if response.StatusCode != http.StatusOK {
		limit = maxHTTPRefusal
	}
	reply, err := io.ReadAll(io.LimitReader(response.Body, int64(limit)+1))
	switch {
	case err != nil:
		return nil, cli.WithClass(fmt.Errorf("%s: %w", t.connect, err), client.ErrNoAnswer)
	case len(reply) > limit:
		return nil, cli.WithClass(fmt.Errorf("%s: bad reply: more than %d bytes", t.connect, limit), client.ErrReply)
	case response.StatusCode != http.StatusOK:
		return nil, cli.WithClass(fmt.Errorf("%s: refused by the server: %s", t.connect, httpRefusal(response.Status, reply)), client.ErrRefused)
	}
	return reply, nil
}

// httpRefusal returns what the reply to a refused request says: its code and message, or the status if it has none.
func httpRefusal(status string, reply []byte) string {
	var doc struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(reply, &doc); err != nil || doc.Error.Code == "" {
		if bytes.Contains(reply, []byte("HTTP request to an HTTPS server")) { // as net/http answers
			status += "; it has TLS, so give https://"
		}
		return status
	}
	return fmt.Sprintf("%.*s (%.64s)", maxHTTPReason, doc.Error.Message, doc.Error.Code)
}
