package mooncake

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/storetest"
)

// startAdmin serves what the admin port of a master does.
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
	long := startAdmin(t, 200, strings.Repeat("x", mostLine+1))
	master, dead := startFake(t, loopback, FormTenant), storetest.FreeAddr(t)
	for name, test := range map[string]struct {
		admin    []string
		most     int
		keys     string
		complete bool
		is       error
		text     string
	}{
		"all":       {admin: []string{leader}, most: 4, keys: "[a b c]", complete: true},
		"just all":  {admin: []string{leader}, most: 3, keys: "[a b c]", complete: true},
		"some":      {admin: []string{leader}, most: 2, keys: "[a b]"},
		"the next":  {admin: []string{dead, standby, leader}, most: 9, keys: "[a b c]", complete: true},
		"none":      {is: ErrAdmin, text: "no admin address is configured"},
		"dead":      {admin: []string{dead}, is: syscall.ECONNREFUSED, text: "nothing listens there"},
		"standby":   {admin: []string{standby}, is: ErrAdmin, text: "it answers HTTP status 503: is it a standby?"},
		"RPC port":  {admin: []string{master.addr}, is: backend.ErrReply, text: "is it the RPC port? The admin port is 9003 by default"},
		"long line": {admin: []string{long}, most: 9, is: ErrAdmin, text: "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Config{Masters: []string{master.addr}, Admin: test.admin})
			keys, complete, err := c.Keys(within(t, patience), test.most)
			if test.text != "" {
				require.ErrorIs(t, err, ErrAdmin)
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
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, "admin")
}

// TestAdminPort has an admin port where RPC is expected: it waits for the rest of the
// question, and is known long before the time for an answer is over.
func TestAdminPort(t *testing.T) {
	l, err := net.Listen("tcp", loopback)
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go func() {
				var head []byte
				for buf := make([]byte, 100); !bytes.Contains(head, []byte("\r\n\r\n")); {
					n, err := conn.Read(buf)
					if err != nil {
						return
					}
					head = append(head, buf[:n]...)
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
			}()
		}
	}()
	c := newClient(t, Config{Masters: []string{l.Addr().String()}, DialTimeout: time.Hour})
	begun := time.Now()
	_, err = c.Info(within(t, 2*patience))
	require.Less(t, time.Since(begun), patience, "not only when all time is over")
	require.ErrorIs(t, err, ErrNotMaster)
	require.ErrorIs(t, err, backend.ErrMismatch)
	require.ErrorContains(t, err, "it speaks HTTP, as the admin port does")
}
