package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/client"
)

// rotation is a server whose tokens, client authorities and certificate are changed in rounds.
// Round n has the tokens and authorities of the generations n and n-1, and the steady ones, so a
// peer of generation g is served in the rounds g and g+1.
type rotation struct {
	*program
	files  *certificates
	steady *certtest.CA
	cas    []*certtest.CA // of each generation

	written, reported atomic.Int64 // rounds: whose files are being written, whose reload is logged
	stop              chan struct{}
	workers           sync.WaitGroup
}

// lastRound returns the last round in which a generation is served.
func lastRound(generation int) int64 { return int64(generation) + 1 }

// steadyGeneration is that of the peers that are always served.
const steadyGeneration = 1 << 30

// tokenOfGeneration returns the token of a generation.
func tokenOfGeneration(g int) string { return tokenOf(fmt.Sprintf("generation-%d", g)) }

// write writes the files of a round.
func (r *rotation) write(round int) {
	tokens, bundle := "tokens:\n", []byte{}
	for _, g := range []int{steadyGeneration, round, round - 1} {
		if g < 0 {
			continue
		}
		tokens += fmt.Sprintf("  - {name: generation-%d, token: %s, allow: all}\n", g, tokenOfGeneration(g))
		ca, err := os.ReadFile(r.authority(g).WriteFile(filepath.Join(r.files.dir, "one.crt")))
		require.NoError(r.t, err)
		bundle = append(bundle, ca...)
	}
	r.written.Store(int64(round))
	replaceFile(r.t, filepath.Join(r.files.dir, "tokens.yaml"), tokens)
	replaceFile(r.t, r.files.caFile, string(bundle))
	r.files.write("server", r.files.ours, "127.0.0.1", fmt.Sprintf("CN=%d", round))
}

// authority returns that of the client certificates of a generation.
func (r *rotation) authority(g int) *certtest.CA {
	if g == steadyGeneration {
		return r.steady
	}
	for len(r.cas) <= g {
		r.cas = append(r.cas, certtest.NewCA(fmt.Sprintf("generation %d", len(r.cas))))
	}
	return r.cas[g]
}

// peers returns the peers of a generation, over plain TCP and over mutual TLS.
func (r *rotation) peers(g int) []peer {
	r.files.write("peer", r.authority(g), "peer.example.com")
	return []peer{
		{address: r.addresses[0], token: tokenOfGeneration(g)},
		{address: r.addresses[1], tls: r.files.client(r.t, "peer")},
	}
}

// check judges the end of a request that began when the reload of round began had been logged.
// It reports whether the peer is served no more.
func (r *rotation) check(what string, generation int, began int64, err error) (gone bool) {
	last := lastRound(generation)
	switch {
	case err == nil && began > last:
		r.t.Errorf("%s of generation %d is served after the reload of round %d", what, generation, began)
		return true
	case err == nil:
		return false
	case r.written.Load() <= last:
		r.t.Errorf("%s of generation %d fails in round %d: %v", what, generation, r.written.Load(), err)
	}
	return true
}

// work repeats a request until the peer is gone or the test ends.
func (r *rotation) work(what string, generation int, request func() error) *atomic.Int64 {
	served := new(atomic.Int64)
	r.workers.Go(func() {
		for {
			began := r.reported.Load()
			if r.check(what, generation, began, request()) {
				return
			}
			served.Add(1)
			select {
			case <-r.stop:
				return
			default:
			}
		}
	})
	return served
}

// start starts the workers of a peer: one on a connection that stays open, one on a new connection
// each time, and one that waits for the end of a connection on which it sends nothing.
func (r *rotation) start(generation int, p peer) (served []*atomic.Int64) {
	var dials atomic.Int64
	open, err := p.dial(client.WithConnections(1), client.WithDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}))
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = open.Close() })
	live := r.work("the open connection to "+p.address, generation, func() error {
		_, err := open.Lookup(context.Background(), tableTokensAsked, tableHashes)
		if err == nil && dials.Load() > 1 {
			err = errors.New("the client had to connect again")
		}
		return err
	})
	fresh := r.work("a new connection to "+p.address, generation, func() error { return r.askOnce(p) })
	idle, err := p.dialRaw()
	require.NoError(r.t, err)
	if p.token != "" {
		_, err = idle.exchange([]byte("auth"), []byte(p.token))
		require.NoError(r.t, err)
	}
	_, err = idle.exchange(tableFrames["ping"]...) // over TLS: the certificate is accepted
	require.NoError(r.t, err)
	if generation == steadyGeneration {
		r.t.Cleanup(func() { _ = idle.Close() })
		return []*atomic.Int64{live, fresh}
	}
	r.workers.Go(func() {
		defer idle.Close()
		_, err := idle.read()
		assert.NotErrorIs(r.t, err, os.ErrDeadlineExceeded, "an idle connection of generation %d stays open", generation)
		r.check("an idle connection to "+p.address, generation, 0, err)
	})
	return nil
}

// askOnce makes a request on a new connection. A certificate of the server must be that of the
// last reload or a later one.
func (r *rotation) askOnce(p peer) error {
	reported := r.reported.Load()
	if p.tls != nil {
		p.tls = p.tls.Clone()
		p.tls.VerifyConnection = func(s tls.ConnectionState) error {
			var round int64
			if _, err := fmt.Sscan(s.PeerCertificates[0].Subject.CommonName, &round); err != nil || round < reported {
				r.t.Errorf("the certificate of round %s after the reload of round %d", s.PeerCertificates[0].Subject, reported)
			}
			return nil
		}
	}
	c, err := p.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Lookup(context.Background(), tableTokensAsked, tableHashes)
	return err
}

// Tokens, client authorities and the server's certificate change while peers are served. No
// connection of a peer that stays is cut, and no request of one that is gone is served after its
// reload has been logged.
func TestRotationUnderLoad(t *testing.T) {
	rounds := 20
	if os.Getenv("CI") == "true" && !testing.Short() {
		rounds = 100
	}
	r := &rotation{files: newCertificates(t), steady: certtest.NewCA("steady"), stop: make(chan struct{})}
	r.program = &program{t: t}
	r.write(0)
	config := `
log: {format: json}
backend: {memory: {max_bytes: 64MiB}}
listen:
  - ` + r.files.expand(t, "{address: 'tcp://127.0.0.1:0', tokens: DIR/tokens.yaml}") + `
  - ` + r.files.expand(t, "{address: 'tls://127.0.0.1:0', MUTUAL}") + "\n"
	r.program = startProgramWith(t, config)
	defer func() {
		close(r.stop)
		r.workers.Wait()
	}()
	var steady []*atomic.Int64
	for _, p := range r.peers(steadyGeneration) {
		steady = append(steady, r.start(steadyGeneration, p)...)
	}
	for round := 0; ; round++ {
		if round > 0 {
			r.write(round)
			// The files are polled too. Only the line of this SIGHUP says that drain_timeout has changed.
			r.reload(fmt.Sprintf("%sdrain_timeout: %ds\n", config, 10+round), "reloaded", "drain_timeout")
			r.reported.Store(int64(round))
		}
		if round <= rounds-2 { // the last generation is gone in the last round
			for _, p := range r.peers(round) {
				r.start(round, p)
			}
		}
		for _, served := range steady {
			before := served.Load()
			storetest.Eventually(t, "a peer that stays is served", func() bool { return t.Failed() || served.Load() > before+1 })
		}
		if t.Failed() || round == rounds {
			break
		}
	}
}
