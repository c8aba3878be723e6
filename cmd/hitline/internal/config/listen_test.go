package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/access"
)

func TestListen(t *testing.T) {
	c, err := Load(Source{File: write(t, `
listen:
  - tcp://127.0.0.1:1
  - address: tcp://0.0.0.0:2
    allow: [lookup, ping]
  - {address: "ipc:///x", allow: all}
  - address: tls://0.0.0.0:3
    allow: []
    tokens: /t.yaml
    tls: {cert: c, key: k, client_ca: a}
`)})
	require.NoError(t, err)
	assert.Equal(t, []Listener{
		{Address: "tcp://127.0.0.1:1"},
		{Address: "tcp://0.0.0.0:2", Allow: Allow{"lookup", "ping"}},
		{Address: "ipc:///x", Allow: access.All.Names()},
		{Address: "tls://0.0.0.0:3", Allow: Allow{}, Tokens: "/t.yaml", TLS: &TLS{Cert: "c", Key: "k", ClientCA: "a"}},
	}, c.Listen)
	assert.Equal(t, []string{"/t.yaml", "c", "k", "a"}, c.Listen[3].Files())
	assert.Empty(t, c.Listen[0].Files())
}

// The contradictions of an entry, and where they are.
func TestListenerErrors(t *testing.T) {
	const requests = "is no permission; known are lookup, plan, explain, stat, ping, pool, holders, store, evict, reset, and all without a list"
	for _, test := range []struct{ text, want string }{
		{"listen:\n  - address: tcp://a:1\n    alow: all\n", `c.yaml:3:5: listen[0].alow: unknown field; did you mean allow?`},
		{"listen:\n  - allow: all\n", `c.yaml:2:5: listen[0].address: is missing; give one such as tcp://127.0.0.1:7557`},
		{"listen:\n  - address:\n", `c.yaml:2:14: listen[0].address: has no value; leave the field out for its default`},
		{"listen:\n  - address: a\n", `c.yaml:2:14: listen[0].address: "a": missing port in address; write tcp://host:port, an IPv6 address in brackets`},
		{"listen:\n  -\n", `c.yaml:2:5: listen[0]: has no value; leave the field out for its default`},
		{"listen: [tcp://a:1, {address: \"tls://a:1\", tls: {cert: c, key: k}}]\n", `c.yaml:1:31: listen[1].address: "tls://a:1" is the address of listen[0], too; give each its own`},
		{"listen:\n  - address: tcp://a:1\n    allow: everything\n", `c.yaml:3:12: listen[0].allow: must be all, or a list such as [lookup, ping]`},
		{"listen:\n  - address: tcp://a:1\n    allow:\n", `c.yaml:3:12: listen[0].allow: has no value; leave the field out for its default`},
		{"listen:\n  - address: tcp://a:1\n    allow: [lookup, load_mask]\n", `c.yaml:3:21: listen[0].allow[1]: "load_mask" ` + requests},
		{"listen:\n  - address: tcp://a:1\n    allow:\n      - all\n", `c.yaml:4:9: listen[0].allow[0]: "all" ` + requests},
		{"listen:\n  - address: tcp://a:1\n    tokens: ''\n", `c.yaml:3:13: listen[0].tokens: is empty; give the path of a file, or leave it out`},
		{"listen:\n  - address: tcp://a:1\n    tls: {cert: c, key: k}\n", `c.yaml:3:5: listen[0].tls: "tcp://a:1" is without TLS; write tls://host:port, or remove tls`},
		{"listen: [tls://a:1]\n", `c.yaml:1:10: listen[0]: "tls://a:1" needs tls: {cert: FILE, key: FILE} in the YAML file`},
		{"listen:\n  - address: tls://a:1\n    tls:\n", `c.yaml:2:5: listen[0]: "tls://a:1" needs tls: {cert: FILE, key: FILE} in the YAML file`},
		{"listen:\n  - address: tls://a:1\n    tls: {}\n", `c.yaml:3:5: listen[0].tls.cert: is missing; TLS needs cert and key`},
		{"listen:\n  - address: tls://a:1\n    tls: {cert: c}\n", `c.yaml:3:5: listen[0].tls.key: is missing; TLS needs cert and key`},
		{"listen:\n  - address: tls://a:1\n    tls: {cert: c, key: k, client_ca: ''}\n", `c.yaml:3:39: listen[0].tls.client_ca: is empty; give the path of a file, or leave it out`},
		{"listen: [{address: \"tls://127.0.0.1:1\", tls: {cert: c, key: k}}]\nmetrics: 127.0.0.1:1\n", `c.yaml:2:10: metrics: "127.0.0.1:1" is the address of listen[0].address, too; give each its own`},
	} {
		t.Run(test.text, func(t *testing.T) { assert.Equal(t, test.want, fails(t, test.text)) })
	}
	_, err := Load(Source{Environ: []string{"HITLINE_LISTEN=tcp://a:1,tls://b:2"}})
	assert.EqualError(t, err, `HITLINE_LISTEN: listen[1]: "tls://b:2" needs tls: {cert: FILE, key: FILE} in the YAML file`)
}

// Who may do what where nothing says so, and where something does.
func TestListenerPermissions(t *testing.T) {
	tls := &TLS{Cert: "c", Key: "k"}
	mutual := &TLS{Cert: "c", Key: "k", ClientCA: "a"}
	for _, test := range []struct {
		listener Listener
		want     access.Permissions
	}{
		{Listener{Address: "tcp://127.0.0.1:1"}, access.All},
		{Listener{Address: "127.9.9.9:1"}, access.All},
		{Listener{Address: "tcp://[::1]:1"}, access.All},
		{Listener{Address: "tcp://[::ffff:127.0.0.1]:1"}, access.All},
		{Listener{Address: "tcp://LOCALHOST:1"}, access.All},
		{Listener{Address: "ipc:///run/x"}, access.All},
		{Listener{Address: "tls://127.0.0.1:1", TLS: tls}, access.All},
		{Listener{Address: "tcp://0.0.0.0:1"}, access.ReadOnly},
		{Listener{Address: "tcp://[::]:1"}, access.ReadOnly},
		{Listener{Address: "tcp://10.0.0.1:1"}, access.ReadOnly},
		{Listener{Address: "tcp://engine:1"}, access.ReadOnly},
		{Listener{Address: "tls://0.0.0.0:1", TLS: tls}, access.ReadOnly},
		{Listener{Address: "tls://0.0.0.0:1", TLS: mutual}, access.All},
		{Listener{Address: "tls://0.0.0.0:1", TLS: mutual, Tokens: "t"}, access.Ping},
		{Listener{Address: "tcp://127.0.0.1:1", Tokens: "t"}, access.Ping},
		{Listener{Address: "tcp://127.0.0.1:1", Allow: Allow{}}, 0},
		{Listener{Address: "tcp://0.0.0.0:1", Allow: Allow{"store"}, Tokens: "t"}, access.Store},
		{Listener{Address: "tcp://0.0.0.0:1", Allow: access.All.Names()}, access.All},
	} {
		assert.Equal(t, test.want, test.listener.Permissions(), "%+v", test.listener)
	}
}

// What is printed says what is allowed, except on loopback, and reads back to the same.
func TestListenYAML(t *testing.T) {
	const text = `listen:
  - tcp://127.0.0.1:1
  - "127.0.0.1:2"
  - address: tcp://0.0.0.0:5
    allow: all
  - address: tcp://127.0.0.1:6
    allow:
      - ping
    tokens: "/t: #.yaml"
  - address: tls://0.0.0.0:7
    allow: all
    tls:
      cert: "/c"
      key: "/k"
      client_ca: "/a"
`
	c := load(t, `
listen:
  - tcp://127.0.0.1:1
  - address: 127.0.0.1:2
  - {address: "tcp://0.0.0.0:5", allow: [store, evict, reset, holders, pool, ping, stat, explain, plan, lookup]}
  - {address: "tcp://127.0.0.1:6", tokens: "/t: #.yaml"}
  - {address: "tls://0.0.0.0:7", tls: {cert: /c, key: /k, client_ca: /a}}
`)
	got, err := c.YAML()
	require.NoError(t, err)
	require.Equal(t, text, string(got[:len(text)]))
	back, err := load(t, string(got)).YAML()
	require.NoError(t, err)
	assert.Equal(t, string(got), string(back))
}
