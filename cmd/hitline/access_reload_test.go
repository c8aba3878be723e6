package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// SIGHUP: a bad file changes nothing, a good one adds pools and changes limits, log and
// permissions. Connections stay open.
func TestReloadEndToEnd(t *testing.T) {
	const before = `
log: {format: json}
backend: {memory: {max_bytes: 256MiB}}
pool: {}
limits: {max_hashes: 100}
listen: ['tcp://127.0.0.1:0']
`
	after := strings.NewReplacer("{format: json}", "{format: json, level: debug}", "max_hashes: 100", "max_hashes: 3",
		"pool: {}", "pool: {}\npools: {new: {model_name: new}}",
		"['tcp://127.0.0.1:0']", "[{address: 'tcp://127.0.0.1:0', allow: [lookup, ping, pool]}]").Replace(before)
	p := startProgramWith(t, before)
	open, err := peer{address: p.addresses[0]}.dial(client.WithConnections(1))
	require.NoError(t, err)
	defer open.Close()
	ctx := context.Background()
	three := netproto.NewHashes(tableHashes.Bytes()[:96], 32)

	// served returns the errors of a long lookup, a short one, a store and a pool that is new.
	served := func() (errs []error) {
		_, long := open.Lookup(ctx, 64, tableHashes)
		_, short := open.Lookup(ctx, 48, three)
		c, pool := peer{address: p.addresses[0]}.dial(client.WithPoolName("new"))
		if pool == nil {
			c.Close()
		}
		return []error{long, short, open.Store(ctx, netproto.GroupRank{}, three), pool}
	}
	isBefore := func(what string) {
		errs := served()
		assert.NoError(t, errs[0], what)
		assert.NoError(t, errs[1], what)
		assert.NoError(t, errs[2], what)
		assert.ErrorIs(t, errs[3], client.ErrRefused, what)
	}
	isBefore("at first")
	for _, bad := range []string{
		after + "limits: {max_hashes: 4}\n", // twice
		strings.Replace(after, "level: debug", "level: shouting", 1),
		strings.Replace(after, "allow: [lookup, ping, pool]", "allow: [nothing]", 1),
		strings.Replace(after, "model_name: new", "tp_size: -1", 1),
		strings.Replace(after, "allow: [lookup, ping, pool]", "tokens: /no/such/file", 1),
		"\x00", strings.Replace(after, "tcp://127.0.0.1:0", "tls://127.0.0.1:0", 1),
	} {
		log := p.reload(bad, "not reloaded", "")
		assert.Contains(t, log, `"level":"ERROR"`, bad)
		assert.Contains(t, log, p.config, bad)
		isBefore(bad)
	}
	log := p.reload(after, "reloaded", "")
	assert.NotContains(t, log, `"level":"ERROR"`)
	for i := range 2 {
		errs := served()
		assert.ErrorIs(t, errs[0], client.ErrRefused)
		assert.ErrorContains(t, errs[0], "the limit is 3")
		assert.NoError(t, errs[1])
		assert.ErrorIs(t, errs[2], client.ErrNotAllowed)
		assert.NoError(t, errs[3])
		if i == 0 { // what is the same changes nothing
			p.reload("", "reloaded", "")
		}
	}

	// What cannot change is named once, and the rest is in effect.
	log = p.reload(strings.NewReplacer("\npool: {}", "\npool: {tp_size: 2}", "max_bytes: 256MiB", "max_bytes: 512MiB",
		"max_hashes: 3", "max_hashes: 100", "listen: [", "loops: 3\nlisten: ['ipc://@hitline-reload-test', ").Replace(after), "some changes need a restart", "")
	var warned []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"level":"WARN"`) {
			warned = append(warned, line)
		}
	}
	require.Len(t, warned, 1, log)
	for _, field := range []string{"pool.tp_size", "backend.memory.max_bytes", "loops", "listen"} {
		assert.Contains(t, warned[0], field)
	}
	_, err = open.Lookup(ctx, 64, tableHashes)
	assert.NoError(t, err)
	_, err = peer{address: "ipc://@hitline-reload-test"}.dial()
	assert.ErrorIs(t, err, client.ErrConnect)
}

// A tokens file is followed without a signal: a new token is taken, and connections of one that is
// gone are closed, also while they send nothing.
func TestTokensFileIsFollowed(t *testing.T) {
	files := newCertificates(t)
	tokens := filepath.Join(files.dir, "tokens.yaml")
	replaceFile(t, tokens, withTokens("tokens:\n  - {name: stays, token: TOKEN(stays), allow: all}\n  - {name: goes, token: TOKEN(goes), allow: all}\n"))
	p := startProgramWith(t, "log: {format: json}\nlisten:\n  - "+files.expand(t, "{address: 'tcp://127.0.0.1:0', tokens: DIR/tokens.yaml}")+"\n")
	open := map[string]*rawConn{}
	for _, name := range []string{"stays", "goes"} {
		c, err := peer{address: p.addresses[0]}.dialRaw()
		require.NoError(t, err)
		defer c.Close()
		reply, err := c.exchange([]byte("auth"), []byte(tokenOf(name)))
		require.NoError(t, err)
		require.Equal(t, "\x01", string(reply[0]))
		open[name] = c
	}
	come := peer{address: p.addresses[0], token: tokenOf("comes")}
	_, err := come.dial()
	require.ErrorIs(t, err, client.ErrNotAuthenticated)

	replaceFile(t, tokens, withTokens("tokens:\n  - {name: stays, token: TOKEN(stays), allow: [ping]}\n  - {name: comes, token: TOKEN(comes), allow: all}\n"))
	_, err = open["goes"].read()
	require.ErrorIs(t, err, io.EOF)
	c, err := come.dial()
	require.NoError(t, err)
	defer c.Close()
	assert.EqualValues(t, 1, statOf(t, c).Closed["credential_revoked"])
	for request, status := range map[string]string{"ping": "\x01", "stat": "\x00"} {
		reply, err := open["stays"].exchange(tableFrames[request]...)
		require.NoError(t, err)
		assert.Equal(t, status, string(reply[0]), request)
	}
}
