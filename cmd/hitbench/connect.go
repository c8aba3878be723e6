package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/printable"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// clientConn makes a replay.Target of a client: group 0, rank 0, and refusals by
// the name that bench knows.
type clientConn struct{ *client.Client }

func (c clientConn) Lookup(ctx context.Context, numTokens uint32, hashes []byte, hashLen int) (uint32, error) {
	hit, err := c.Client.Lookup(ctx, int64(numTokens), coordinator.NewHashes(hashes, hashLen))
	return uint32(hit.Tokens), refusal(err)
}

func (c clientConn) Store(ctx context.Context, keys []byte, hashLen int) error {
	return refusal(c.Client.Store(ctx, coordinator.GroupRank{}, coordinator.NewHashes(keys, hashLen)))
}

// learn asks for the server's pool, with two random hashes that are stored for it.
func (c clientConn) learn(ctx context.Context) (workload.Pool, error) {
	blob := make([]byte, workload.ProbeHashes*workload.HashLen)
	_, _ = rand.Read(blob) // never fails
	return workload.Probe(
		func() error { return c.Store(ctx, blob, workload.HashLen) },
		func(tokens uint32) (uint32, error) { return c.Lookup(ctx, tokens, blob, workload.HashLen) },
		func() error {
			return refusal(c.Evict(ctx, coordinator.GroupRank{}, coordinator.NewHashes(blob, workload.HashLen)))
		},
	)
}

func refusal(err error) error {
	if errors.Is(err, client.ErrRefused) {
		return fmt.Errorf("%w: %w", measure.ErrRefused, err)
	}
	return err
}

// dialError words the error of a server that is not there, is lost or speaks another protocol, and returns others as they
// are.
func dialError(addr string, err error) error {
	if frame, ok := errors.AsType[*netproto.FrameError](err); ok { // those before it say what was asked, not what is wrong
		return cli.WithClass(fmt.Errorf("%s: bad reply: %w", addr, frame), measure.ErrAnswer)
	}
	if failed, ok := errors.AsType[*net.OpError](err); !ok || failed.Op != "dial" {
		if _, why, isLost := strings.Cut(err.Error(), measure.ErrLost.Error()+": "); isLost && !strings.Contains(err.Error(), addr) {
			return cli.WithClass(fmt.Errorf("%s: %s", addr, why), measure.ErrLost)
		}
		return err
	}
	return cli.WithClass(connectflags.ConnectError(addr, err, "hitline serve starts one"), measure.ErrLost)
}

// server returns the address of the server to ask, which --connect or the environment names, and
// what the flags say of connections to it. It warns of a token that can be read on the network.
func (a *app) server(flags *connectflags.Flags) (addr string, c connectflags.Connection, err error) {
	if addr, err = flags.Address(); err != nil {
		return "", c, cli.WithClass(err, cli.ErrUsage)
	}
	if c, err = flags.Load(addr); err != nil {
		return "", c, cli.WithClass(err, api.ErrConfig)
	}
	if c.Warning != "" {
		fmt.Fprintf(a.stderr, "hitbench: %s\n", printable.Text(c.Warning))
	}
	return addr, c, nil
}
