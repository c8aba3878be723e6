package mooncake

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/internal/storetest"
)

// startAdmin starts an admin port that returns page with status.
func startAdmin(t *testing.T, status int, page string) (addr string) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/get_all_keys" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, page)
	}))
	t.Cleanup(web.Close)
	return web.Listener.Addr().String()
}

func TestKeys(t *testing.T) {
	leader, standby := startAdmin(t, 200, "a\nb\r\n\nc"), startAdmin(t, 503, "")
	long := startAdmin(t, 200, strings.Repeat("x", maxKeyBytes+1))
	master, dead := startFake(t, loopback, FormTenant), storetest.FreeAddr(t)
	for name, test := range map[string]struct {
		admin    []string
		limit    int
		keys     string
		complete bool
		is       error
		text     string
	}{
		"all":       {admin: []string{leader}, limit: 4, keys: "[a b c]", complete: true},
		"just all":  {admin: []string{leader}, limit: 3, keys: "[a b c]", complete: true},
		"some":      {admin: []string{leader}, limit: 2, keys: "[a b]"},
		"the next":  {admin: []string{dead, standby, leader}, limit: 9, keys: "[a b c]", complete: true},
		"none":      {is: errListKeys, text: "no admin address is configured"},
		"dead":      {admin: []string{dead}, is: syscall.ECONNREFUSED, text: "nothing listens there"},
		"standby":   {admin: []string{standby}, is: errListKeys, text: "it answers HTTP status 503: is it a standby?"},
		"RPC port":  {admin: []string{master.addr}, is: backend.ErrReply, text: "is it the RPC port? The admin port is 9003 by default"},
		"long line": {admin: []string{long}, limit: 9, is: errListKeys, text: "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Config{Masters: []string{master.addr}, Admin: test.admin})
			keys, complete, err := c.Keys(contextWithin(t, testTimeout), test.limit)
			if test.text != "" {
				require.ErrorIs(t, err, errListKeys)
				require.ErrorIs(t, err, test.is)
				require.ErrorContains(t, err, test.text)
				require.Empty(t, keys)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.keys, fmt.Sprint(keys))
			require.Equal(t, test.complete, complete)
		})
	}
	_, err := New(Config{Masters: []string{master.addr}, Admin: []string{"x"}})
	require.ErrorIs(t, err, fielderror.ErrConfig)
	require.ErrorContains(t, err, "admin")
}

// TestKeysOfAnEndlessList has an admin port that lists keys for ever, one that sends empty lines
// for ever, and one with an endless header.
func TestKeysOfAnEndlessList(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n\r\n"
	key := strings.Repeat("x", 60_000) + "\n"
	for name, test := range map[string]struct {
		start, repeat string
		keys          int
		text          string
	}{
		"long keys":       {start: ok, repeat: key, keys: maxListBytes / len(key)},
		"empty lines":     {start: ok, repeat: strings.Repeat("\n", 4096)},
		"endless header":  {start: "HTTP/1.1 200 OK\r\n", repeat: "x: " + strings.Repeat("x", 4096) + "\r\n", text: "header"},
		"endless status":  {start: "HTTP/1.1 200 ", repeat: strings.Repeat("x", 4096), text: "header"},
		"endless chunks":  {start: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", repeat: strings.Repeat("5\r\nabcd\n\r\n", 1000), keys: 1 << 20},
		"a chunk of 4 GB": {start: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", repeat: key, keys: maxListBytes / len(key)},
		"a body of 4 EB":  {start: "HTTP/1.1 200 OK\r\nContent-Length: 4611686018427387904\r\n\r\n", repeat: key, keys: maxListBytes / len(key)},
		"continue":        {start: "", repeat: "HTTP/1.1 100 Continue\r\n\r\n", text: "header"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", loopback)
			require.NoError(t, err)
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				_, _ = io.ReadFull(c, make([]byte, 10))
				for _, err := io.WriteString(c, test.start); err == nil; _, err = io.WriteString(c, test.repeat) {
				}
			}()
			master := startFake(t, loopback, FormTenant)
			c := newClient(t, Config{Masters: []string{master.addr}, Admin: []string{l.Addr().String()}})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			keys, complete, err := c.Keys(contextWithin(t, testTimeout), 1<<20)
			runtime.ReadMemStats(&after)
			most := 8 * maxListBytes
			if test.text != "" {
				most = maxListBytes / 2
			}
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(most))
			require.False(t, complete)
			if test.text != "" {
				require.ErrorContains(t, err, test.text)
				return
			}
			require.NoError(t, err)
			require.Len(t, keys, test.keys)
		})
	}
}
