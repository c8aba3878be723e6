package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
	"github.com/hitline/hitline/internal/printable"
	"github.com/hitline/hitline/lookup/client"
)

// target is the flags that all commands with a client share.
type target struct {
	connect    string // address of the server, set by check
	pool       string // name of the pool at the server, "" for its own
	namesPool  bool   // also that of its own: then the server describes it
	timeout    time.Duration
	json       bool
	secure     connectflags.Flags
	warn       func(text string) // prints a line on standard error
	warned     bool              // of an insecure connection
	sendsToken bool              // set by loadConnection
}

// connectionTopic is the help topic of the flags of connections.
const connectionTopic = "connection"

const connectionHelp = `These commands ask a server, with these flags: lookup, pools, ping, stat,
store, evict, reset; doctor with --pool; and holders and router, which ask
router.listen over HTTP: --connect http://host:port, by default port 8557 of
this machine.

A variable is read if its flag is not given. HITLINE_ADDRESS has the address,
but holders and router do not read it. Both may be a list with commas: the
pool's name says which server is asked, and the next one if it is away.
Exit codes: 0 done, 1 refused or a bad answer, 2 wrong usage, 3 no connection.`

// addFlags defines the flags, which are checked before the command runs. Commands call it after their own, which help
// lists first.
func (t *target) addFlags(cmd *cobra.Command) {
	if !t.secure.HTTP {
		cmd.Flags().StringVar(&t.pool, "pool", "", "`name` of the pool at the server (default its own)")
	}
	cli.JSONFlag(cmd.Flags(), &t.json)
	cli.TopicFlags(cmd.Flags(), connectionTopic, t.addConnectionFlags)
	t.setWarn(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) error { return t.check() }
}

// addConnectionFlags defines the flags of a connection and its timeout.
func (t *target) addConnectionFlags(flags *pflag.FlagSet) {
	t.secure.AddAddress(flags)
	t.addTimeout(flags)
	t.secure.Add(flags)
}

// addTimeout defines the flag of the time within which a request is answered.
func (t *target) addTimeout(flags *pflag.FlagSet) {
	cli.DurationVarP(flags, &t.timeout, "timeout", "", 10*time.Second, "most `time` to wait for connecting and the answer together")
}

// setWarn makes warnings go to the command's standard error.
func (t *target) setWarn(cmd *cobra.Command) {
	t.warn = func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "hitline: %s\n", printable.Text(text)) }
}

// check finds the address of the server, and returns an error for invalid flags.
func (t *target) check() error {
	if err := t.checkTimeout(); err != nil {
		return err
	}
	var err error
	if t.connect, err = t.secure.Address(); err != nil {
		return usagef("%v", err)
	}
	return nil
}

// checkTimeout returns an error for a timeout within which nothing is answered.
func (t *target) checkTimeout() error {
	if t.timeout <= 0 {
		return usagef("--timeout is %v, must be more than 0", t.timeout)
	}
	return nil
}

// do connects, runs request, and closes the connection. The timeout bounds all three.
func (t *target) do(ctx context.Context, request func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	c, err := t.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // the client buffers nothing, so its error would be no news
	if err := request(ctx, c); err != nil {
		return t.wrapError(ctx, err)
	}
	return nil
}

// ask makes a request over a connection of its own and returns its answer.
func ask[T any](ctx context.Context, t *target, request func(context.Context, *client.Client) (T, error)) (answer T, err error) {
	err = t.do(ctx, func(ctx context.Context, c *client.Client) (err error) {
		answer, err = request(ctx, c)
		return err
	})
	return answer, err
}

// dial connects. It reads the files of the token and TLS, so they may change between two calls.
func (t *target) dial(ctx context.Context) (*client.Client, error) {
	connection, err := t.loadConnection()
	if err != nil {
		return nil, err
	}
	options := connection.Options()
	if t.pool != "" || t.namesPool {
		options = append(options, client.WithPoolName(t.pool))
	}
	c, err := client.Dial(ctx, t.connect, options...)
	if err != nil {
		return nil, t.wrapError(ctx, err)
	}
	return c, nil
}

// loadConnection reads the files of the token and TLS. It prints the warning of an insecure connection once.
func (t *target) loadConnection() (connectflags.Connection, error) {
	connection, err := t.secure.Load(t.connect)
	if err != nil {
		return connection, configError(err)
	}
	t.sendsToken = connection.Token() != ""
	if connection.Warning != "" && !t.warned {
		t.warn(connection.Warning)
		t.warned = true
	}
	return connection, nil
}

// wrapError adds the server's address to an error, and what to do about it. After a timeout the text says whether the
// client had connected.
func (t *target) wrapError(ctx context.Context, err error) error {
	timedOut := errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case errors.Is(err, client.ErrBusy): // the client has tried again until its time was up
		return cli.WithClass(fmt.Errorf("%s: refused for %v: the server is busy", t.connect, t.timeout), client.ErrBusy)
	case timedOut && errors.Is(err, client.ErrNoAnswer):
		return cli.WithClass(fmt.Errorf("%s: connected, but no answer within %v", t.connect, t.timeout), client.ErrNoAnswer)
	case timedOut:
		return cli.WithClass(fmt.Errorf("%s: no connection within %v", t.connect, t.timeout), client.ErrConnect)
	case errors.Is(err, client.ErrConnect):
		return cli.WithClass(connectflags.ConnectError(t.connect, err, "hitline serve starts one"), client.ErrConnect)
	case errors.Is(err, client.ErrNoPool) && t.pool != "":
		return cli.WithClass(fmt.Errorf("%s: the server has no pool %q for you; hitline pools lists them", t.connect, t.pool), client.ErrRefused)
	case errors.Is(err, client.ErrNoPool):
		return cli.WithClass(fmt.Errorf("%s: the server has no pool of its own; name one by --pool: hitline pools lists them", t.connect), client.ErrRefused)
	case errors.Is(err, client.ErrNotAllowed) && !t.sendsToken:
		return fmt.Errorf("%s: %w; if a token allows it, give --token-file", t.connect, err)
	}
	return fmt.Errorf("%s: %w", t.connect, err)
}
