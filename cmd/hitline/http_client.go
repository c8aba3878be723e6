package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
	"github.com/hitline/hitline/lookup/client"
	routerclient "github.com/hitline/hitline/router/client"
)

// askingHTTP returns the target of a command that asks router.listen.
func askingHTTP() target { return target{secure: connectflags.Flags{HTTP: true}} }

// askRouter makes a request to router.listen and returns its answer.
func askRouter[T any](ctx context.Context, t *target, request func(context.Context, *routerclient.Client) (T, error)) (answer T, err error) {
	connection, err := t.loadConnection()
	if err != nil {
		return answer, err
	}
	c, err := routerclient.New(t.connect, routerclient.WithTimeout(t.timeout), routerclient.WithToken(connection.Token()),
		routerclient.WithTLS(connection.TLS))
	if err != nil {
		return answer, usagef("%s: %v", t.connect, err)
	}
	defer c.Close()
	answer, err = request(ctx, c)
	return answer, t.wrapHTTPError(err)
}

// wrapHTTPError gives an error of a router's client its exit code, and says what to do about it.
func (t *target) wrapHTTPError(err error) error {
	_, isNetwork := errors.AsType[*net.OpError](err)
	_, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	switch {
	case errors.Is(err, routerclient.ErrNoAnswer) && errors.Is(err, context.DeadlineExceeded):
		return cli.WithClass(fmt.Errorf("%s: no answer within %v", t.connect, t.timeout), client.ErrNoAnswer)
	case errors.Is(err, routerclient.ErrNoAnswer):
		return cli.WithClass(err, client.ErrNoAnswer)
	case isUnknown, isNetwork && errors.Is(err, routerclient.ErrConnect) && !errors.Is(err, syscall.ECONNRESET):
		return cli.WithClass(connectflags.ConnectError(t.connect, err, "hitline serve with router.listen starts one"), client.ErrConnect)
	case errors.Is(err, routerclient.ErrConnect):
		return cli.WithClass(err, client.ErrConnect)
	}
	return err
}
