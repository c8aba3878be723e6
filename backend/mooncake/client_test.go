package mooncake

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

const loopback = "127.0.0.1:0"

func TestConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"none is given":                 {},
		"must be host:port":             {Masters: []string{"127.0.0.1"}},
		"such as":                       {Masters: []string{":50051"}},
		"127.0.0.1:0":                   {Masters: []string{"127.0.0.1:0"}},
		"127.0.0.1:99999":               {Masters: []string{"127.0.0.1:99999"}},
		"given twice":                   {Masters: []string{"a:1", "b:1", "a:1"}},
		"must not begin with _":         {Masters: []string{"a:1"}, Tenant: "_x"},
		"control characters":            {Masters: []string{"a:1"}, Tenant: "x\n"},
		"longer than":                   {Masters: []string{"a:1"}, Tenant: strings.Repeat("x", 256)},
		"conns: -1 is negative":         {Masters: []string{"a:1"}, Conns: -1},
		"dial_timeout: -1s is negative": {Masters: []string{"a:1"}, DialTimeout: -time.Second},
		"etcd://…: hitline does not find masters by etcd": {Masters: []string{"etcd://127.0.0.1:50051"}},
		"tcp://…: leave out tcp://":                       {Masters: []string{"tcp://127.0.0.1:50051"}},
		"give each address as an item of its own":         {Masters: []string{"127.0.0.1:50051;127.0.0.2:50051"}},
	} {
		_, err := New(cfg)
		require.ErrorIs(t, err, fielderror.ErrConfig, name)
		require.ErrorContains(t, err, name)
	}
}

func TestForms(t *testing.T) {
	for _, form := range []Form{FormTenant, FormKeys} {
		for _, debug := range []bool{false, true} {
			f := startFake(t, loopback, form)
			f.debug = debug
			c := newClient(t, Config{Masters: []string{f.addr}})
			checkExists(t, c)
			checkExists(t, c)
			info, err := c.Info(contextWithin(t, testTimeout))
			require.NoError(t, err)
			require.Positive(t, info.RTT)
			info.RTT = 0
			require.Equal(t, Info{Leader: f.addr, Version: "9.8.7", Form: form}, info)
			answers, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList(nil), false)
			require.NoError(t, err)
			require.Empty(t, answers)
		}
	}
}

// TestUnknownForm has a master that takes neither form, and one without BatchExistKey.
func TestUnknownForm(t *testing.T) {
	var log logtest.Buffer
	f := startFake(t, loopback)
	c := newClient(t, Config{Masters: []string{f.addr}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
	require.ErrorIs(t, err, errForm)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	_, err = c.Info(contextWithin(t, testTimeout))
	require.ErrorIs(t, err, errForm)
	eventually(t, "it is logged", func() bool { return strings.Contains(log.String(), "takes no form of BatchExistKey known here") })
	require.Equal(t, 1, strings.Count(log.String(), "\n"), "logged once: %s", log.String())
	require.Contains(t, log.String(), "level=ERROR")

	all := func(q *request, _ []byte) { q.write(response(codeNotRegister, q.seq, textBody("not registered"))) }
	f.always.Store(&all)
	_, err = c.Info(contextWithin(t, testTimeout))
	require.ErrorIs(t, err, errForm)
}

// TestBadReplies has a master that answers every request for keys with an error, or ends the connection.
func TestBadReplies(t *testing.T) {
	for name, bad := range map[string]struct {
		do   func(*request, []byte)
		is   error
		text string
	}{
		"exception":    {func(q *request, _ []byte) { q.write(response(codeException, q.seq, textBody("boom"))) }, backend.ErrUnavailable, "RPC error 10 (exception): boom"},
		"cut head":     {func(q *request, normal []byte) { q.write(normal[:7]); q.Close() }, backend.ErrUnavailable, "closed the connection"},
		"cut body":     {func(q *request, normal []byte) { q.write(normal[:20]); q.Close() }, backend.ErrUnavailable, "closed the connection"},
		"no reply":     {func(q *request, _ []byte) { q.Close() }, backend.ErrUnavailable, "closed the connection"},
		"invalid":      {storeErrors(storeInvalidParams), backend.ErrUnavailable, "store error -600, invalid parameters"},
		"no tenant":    {storeErrors(storeNoTenant), backend.ErrUnavailable, "store error -1701, the tenant is not registered"},
		"not serving":  {storeErrors(storeNotServing), backend.ErrUnavailable, "store error -1010, not serving"},
		"another mode": {storeErrors(storeNotInMode), backend.ErrUnavailable, "store error -1011, not serving"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, loopback, FormTenant)
			c := newClient(t, Config{Masters: []string{f.addr}})
			checkExists(t, c)
			f.setReply(bad.do)
			for range 3 { // also on a connection of its own
				answers, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here", "there", "nowhere"}, false)
				require.ErrorIs(t, err, bad.is)
				require.ErrorContains(t, err, bad.text)
				require.NotContains(t, err.Error(), "\n")
				require.Empty(t, answers)
			}
			f.resetReply()
			checkExists(t, c)
			eventually(t, "the others are closed", func() bool { return f.numConns() <= DefaultConns })
		})
	}
}

func storeErrors(code int) func(*request, []byte) {
	return func(q *request, _ []byte) {
		q.write(response(0, q.seq, existBody(slices.Repeat([]int{code}, len(q.keys)), false)))
	}
}

// TestStoreErrors mixes errors of the store with answers: Exists returns them as answers.
func TestStoreErrors(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	f.present["broken"] = -712
	c := newClient(t, Config{Masters: []string{f.addr}})
	answers, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here", "broken", "nowhere"}, false)
	require.NoError(t, err)
	require.Equal(t, []int{1, -712, 0}, answers)
	const notFound = -704
	f.setReply(storeErrors(notFound))
	answers, err = c.Exists(contextWithin(t, testTimeout), backend.KeyList{"a", "b"}, false)
	require.NoError(t, err)
	require.Equal(t, []int{notFound, notFound}, answers)
}

// TestLateReply has a master that answers after the deadline. Exists fails at the deadline, and
// the late reply answers no other request.
func TestLateReply(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}, Conns: 1})
	checkExists(t, c)
	late := make(chan struct{})
	f.setReply(func(q *request, normal []byte) {
		<-late
		q.write(normal)
	})
	start := time.Now()
	_, err := c.Exists(contextWithin(t, 50*time.Millisecond), backend.KeyList{"here"}, false)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Less(t, time.Since(start), testTimeout/2)

	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err = c.Exists(ctx, backend.KeyList{"here"}, false)
	require.ErrorIs(t, err, context.Canceled)

	f.resetReply()
	close(late)
	require.EqualError(t, err, "mooncake "+f.addr+": unavailable: the call was given up")
	for range 20 {
		checkExists(t, c)
	}
	eventually(t, "the late ones are closed", func() bool { return f.numConns() <= 2 })
}

// TestClosedIdle has a master that closes idle connections.
func TestClosedIdle(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}})
	for range 5 {
		checkExists(t, c)
		eventually(t, "all are closed", func() bool { f.closeConns(); return f.numConns() == 0 }) // also those that are being dialled
	}
	checkExists(t, c)
}

// A master sends more than the reply. The reply counts, and the next call is made on another connection.
func TestBytesBehindAReply(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}})
	f.setReply(func(q *request, normal []byte) { q.write(append(slices.Clone(normal), 'x')) })
	for range 3 {
		checkExists(t, c)
	}
}

// A panic while a connection is in use closes it.
func TestPanicClosesConn(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}})
	checkExists(t, c)
	var used *conn
	require.Panics(t, func() {
		_ = c.withConn(contextWithin(t, testTimeout), func(cn *conn) error { used = cn; panic("odd answer") })
	})
	_, err := used.net.Write([]byte{0})
	require.ErrorIs(t, err, net.ErrClosed)
	checkExists(t, c)
}

func TestNoMasterYet(t *testing.T) {
	addr := storetest.FreeAddr(t)
	var log logtest.Buffer
	c := newClient(t, Config{Masters: []string{addr}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.ErrorContains(t, err, "nothing listens there")
	}
	time.Sleep(100 * time.Millisecond) // some rounds
	f := startFake(t, addr, FormTenant)
	eventually(t, "it is found", func() bool {
		_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
		return err == nil
	})
	checkExists(t, c)
	eventually(t, "it is logged", func() bool { return strings.Count(log.String(), "Mooncake leader found") == 1 })
	require.Equal(t, 1, strings.Count(log.String(), "no Mooncake master answers"), log.String())
	f.stop()
	_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	eventually(t, "its loss is logged", func() bool { return strings.Count(log.String(), "no Mooncake master answers") == 2 })
}

// TestWrongServerIsLogged has a port where first nothing listens and then a wrong server does,
// which logs a second line.
func TestWrongServerIsLogged(t *testing.T) {
	addr := storetest.FreeAddr(t)
	var log logtest.Buffer
	c := newClient(t, Config{Masters: []string{addr}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
	require.ErrorContains(t, err, "nothing listens there")
	startFake(t, addr)
	eventually(t, "it is logged", func() bool { return strings.Contains(log.String(), "level=ERROR") })
	require.Contains(t, log.String(), "takes no form")
}

// TestNameOfSeveralMasters has one name for all masters. The first of its addresses accepts and does not
// answer. After a failover the name has other addresses.
func TestNameOfSeveralMasters(t *testing.T) {
	_, port, err := net.SplitHostPort(storetest.FreeAddr(t))
	require.NoError(t, err)
	at := func(ip string) string { return net.JoinHostPort(ip, port) }
	mute, err := net.Listen("tcp", at("127.0.0.1"))
	require.NoError(t, err)
	defer mute.Close()
	first := startFake(t, at("127.0.0.2"), FormTenant)
	var ips atomic.Pointer[[]string]
	ips.Store(&[]string{"127.0.0.1", "127.0.0.2"})
	c := newClient(t, Config{Masters: []string{"masters.test:" + port}, lookupHost: func(_ context.Context, host string) ([]string, error) {
		if found := *ips.Load(); host == "masters.test" && len(found) > 0 {
			return found, nil
		}
		return nil, errors.New("no such host")
	}})
	checkExists(t, c)
	require.Equal(t, first.addr, c.currentLeader())

	ips.Store(&[]string{})
	first.stop()
	eventually(t, "the name has no address", func() bool {
		_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
		return err != nil && strings.Contains(err.Error(), "masters.test:"+port+": its addresses are not known: no such host")
	})
	second := startFake(t, at("127.0.0.3"), FormTenant)
	ips.Store(&[]string{"127.0.0.3"})
	eventually(t, "the second leads", func() bool {
		_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
		return err == nil
	})
	require.Equal(t, second.addr, c.currentLeader())
}

// TestNameOfTwoFamilies has a name with an IPv4 and an IPv6 address of one master. It does not fail over to
// itself when it hangs, and its other address is found when the first is gone.
func TestNameOfTwoFamilies(t *testing.T) {
	one := startFake(t, loopback, FormTenant)
	_, port, err := net.SplitHostPort(one.addr)
	require.NoError(t, err)
	if l, err := net.Listen("tcp", "[::1]:"+port); err != nil {
		t.Skip("no IPv6: ", err)
	} else {
		require.NoError(t, l.Close())
	}
	two := startFake(t, "[::1]:"+port, FormTenant)
	ips := atomic.Pointer[[]string]{}
	ips.Store(&[]string{"127.0.0.1", "::1"})
	c := newClient(t, Config{Masters: []string{"master.test:" + port}, lookupHost: func(context.Context, string) ([]string, error) { return *ips.Load(), nil }})
	checkExists(t, c)
	ips.Store(&[]string{"::1", "127.0.0.1"})
	for range 2 {
		c.recheckLeader()
		eventually(t, "the round ends", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.round == nil
		})
		require.Equal(t, one.addr, c.currentLeader())
	}
	one.stop()
	eventually(t, "the other address", func() bool {
		_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
		return err == nil
	})
	require.Equal(t, two.addr, c.currentLeader())
}

// TestPanic has the attempt to connect panic. That fails the round, and ends no program.
func TestPanic(t *testing.T) {
	c := newClient(t, Config{Masters: []string{"masters.test:50051"}, lookupHost: func(context.Context, string) ([]string, error) { panic("odd name") }})
	_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
	require.ErrorContains(t, err, "a fault of hitline, please report it: odd name")
}

func TestFailover(t *testing.T) {
	first := startFake(t, storetest.FreeAddr(t), FormTenant)
	addr := storetest.FreeAddr(t) // a standby does not listen
	c := newClient(t, Config{Masters: []string{addr, first.addr}})
	checkExists(t, c)

	first.stop()
	second := startFake(t, addr, FormKeys)
	eventually(t, "the second leads", func() bool {
		_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
		return err == nil
	})
	checkExists(t, c)
	require.Positive(t, second.numQueries.Load())

	// The second freezes with its connections open, and the first is back.
	frozen := make(chan struct{})
	freeze := func(*request, []byte) { <-frozen }
	second.always.Store(&freeze)
	defer close(frozen)
	third := startFake(t, first.addr, FormTenant)
	eventually(t, "the first leads again", func() bool {
		_, err := c.Exists(contextWithin(t, 20*time.Millisecond), backend.KeyList{"here"}, false)
		return err == nil
	})
	checkExists(t, c)
	require.Positive(t, third.numQueries.Load())
}

// TestNotServing has a leader that reports that it is no longer the leader.
func TestNotServing(t *testing.T) {
	first := startFake(t, loopback, FormTenant)
	addr := storetest.FreeAddr(t)
	c := newClient(t, Config{Masters: []string{first.addr, addr}})
	checkExists(t, c)
	first.setReply(storeErrors(storeNotServing)) // but not to a request for no keys
	startFake(t, addr, FormTenant)
	eventually(t, "the second leads", func() bool {
		_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
		return err == nil
	})
}

func TestConns(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}, Conns: 3})
	checkExists(t, c)
	release := make(chan struct{})
	var held atomic.Int64
	f.setReply(func(q *request, normal []byte) {
		held.Add(1)
		<-release
		q.write(normal)
	})
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			answers, err := c.Exists(context.Background(), backend.KeyList{"here"}, false)
			if err != nil || answers[0] != 1 {
				t.Errorf("%v, %v", answers, err)
			}
		})
	}
	eventually(t, "three requests are in flight", func() bool { return held.Load() == 3 })
	_, err := c.Exists(contextWithin(t, 20*time.Millisecond), backend.KeyList{"here"}, false)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Regexp(t, "^mooncake "+f.addr+`: unavailable: all 3 connections were busy \(backend.mooncake.conns\): none was free within \d+ms$`, err)
	require.EqualValues(t, 3, held.Load())
	close(release)
	callers.Wait()
	require.EqualValues(t, 3, f.maxInFlight.Load())
}

// TestLateErrors has a master that answers in time only when it is asked for no keys: errors name it, how long it was
// waited for and what bounds that.
func TestLateErrors(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	stop := make(chan struct{})
	defer close(stop)
	c := newClient(t, Config{Masters: []string{f.addr}})
	checkExists(t, c)
	require.Equal(t, "mooncake at "+f.addr, c.String())
	f.setReply(func(*request, []byte) { <-stop })
	const late = `: unavailable: no answer within \d+ms`
	_, err := c.Exists(contextWithin(t, 20*time.Millisecond), backend.KeyList{"here"}, false)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Regexp(t, "^mooncake "+f.addr+late+"$", err)

	service, err := lookup.NewService(lookup.ServiceConfig{
		Pool: coordinator.Pool{ModelName: "m", HashBlockSize: 16}, Backend: c, Remote: lookup.RemoteConfig{Timeout: 20 * time.Millisecond}})
	require.NoError(t, err)
	_, err = service.Lookup(t.Context(), 16, coordinator.NewHashes(make([]byte, 32), 32))
	require.NoError(t, err)
	require.Regexp(t, f.addr+late+"; backend.mooncake.timeout is 20ms$", service.Stat().BackendError)
	_, err = service.Explain(t.Context(), 16, coordinator.NewHashes(make([]byte, 32), 32))
	require.Regexp(t, "; backend.mooncake.timeout is 20ms$", err)

	silent := startServer(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	_, err = newClient(t, Config{Masters: []string{silent}, DialTimeout: testTimeout}).Exists(contextWithin(t, 20*time.Millisecond), backend.KeyList{"here"}, false)
	require.Regexp(t, "^mooncake "+silent+`: unavailable: no master has answered within \d+ms$`, err)
}

// TestClosedWithoutLeader has a call lose the leader when Close has begun, so that no round follows.
func TestClosedWithoutLeader(t *testing.T) {
	c := newClient(t, Config{Masters: []string{startFake(t, loopback, FormTenant).addr}})
	checkExists(t, c)
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.dropLeader(c.term)
	_, _, err := c.waitLeader(t.Context())
	require.Equal(t, errClosed, err)
}

func TestReadOnly(t *testing.T) {
	f := startFake(t, loopback, FormTenant)
	c := newClient(t, Config{Masters: []string{f.addr}})
	require.Equal(t, "mooncake", c.Name())
	for _, err := range []error{
		c.Store(context.Background(), []string{"x"}), c.Evict(context.Background(), []string{"x"}), c.Reset(context.Background()),
	} {
		require.ErrorIs(t, err, backend.ErrReadOnly)
		require.Contains(t, err.Error(), "a Mooncake store", "it says why")
	}
	checkExists(t, c)
	require.Zero(t, f.resets.Load())
}

func TestReset(t *testing.T) {
	for _, form := range []Form{FormTenant, FormKeys} {
		for _, oldest := range []bool{false, form == FormKeys} {
			f := startFake(t, loopback, form)
			f.oldest = oldest
			var log logtest.Buffer
			c := newClient(t, Config{Masters: []string{f.addr}, AllowReset: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			checkExists(t, c)
			require.NoError(t, c.Reset(contextWithin(t, testTimeout)))
			require.EqualValues(t, 1, f.resets.Load())
			require.Contains(t, log.String(), "keys=2")
			answers, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here", "there"}, false)
			require.NoError(t, err)
			require.Equal(t, []int{0, 0}, answers)
			f.setReply(func(q *request, _ []byte) { q.write(response(codeException, q.seq, textBody("boom"))) })
			require.ErrorContains(t, c.Reset(contextWithin(t, testTimeout)), "boom")
		}
	}
}

func TestWrongPorts(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	secure.StartTLS()
	defer secure.Close()
	foreign := startServer(t, func(c net.Conn) { _, _ = io.WriteString(c, "-ERR unknown command, and so on\r\n") })
	closes := startServer(t, func(net.Conn) {})
	waits := startServer(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	for addr, want := range map[string]string{
		secure.Listener.Addr().String(): "it speaks TLS",
		foreign:                         `it begins with "-ERR unknown com`,
		closes:                          "closes the connection where a master answers",
		waits:                           "connected, but no answer within 100ms: is it the HTTP admin port",
		"127.0.0.1:1":                   "nothing listens there",
	} {
		cfg := Config{Masters: []string{addr}, DialTimeout: testTimeout}
		if addr == waits {
			cfg.DialTimeout = 100 * time.Millisecond
		}
		c := newClient(t, cfg)
		for _, call := range []func() error{
			func() error { _, err := c.Info(contextWithin(t, testTimeout)); return err },
			func() error {
				_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
				return err
			},
			func() error {
				_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
				return err
			},
		} {
			err := call()
			require.ErrorIs(t, err, backend.ErrUnavailable)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, addr)
			require.NotContains(t, err.Error(), "\n")
		}
	}
	_, err := newClient(t, Config{Masters: []string{waits}}).Info(contextWithin(t, time.Second))
	require.ErrorContains(t, err, "is it the HTTP admin port", "the call ends before DialTimeout")
}

// startServer starts a server that is no master.
func startServer(t *testing.T, serve func(c net.Conn)) string {
	l, err := net.Listen("tcp", loopback)
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(testTimeout))
				serve(c)
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return l.Addr().String()
}

// TestClose ends calls that wait for a reply, for a connection, for a leader and for an admin port.
func TestClose(t *testing.T) {
	silent := startServer(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	f := startFake(t, loopback, FormTenant)
	hold := func(q *request, normal []byte) {
		if len(q.keys) > 0 || q.function == fnRemoveAll || q.function == fnServiceReady || q.function == fnGetReplicaList {
			_, _ = io.Copy(io.Discard, q)
		} else {
			q.write(normal)
		}
	}
	f.always.Store(&hold)
	for _, masters := range [][]string{{f.addr}, {silent}} {
		c := newClient(t, Config{Masters: masters, Conns: 2, DialTimeout: testTimeout, AllowReset: true, Admin: []string{silent}})
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() {
				_, err := c.Exists(context.Background(), backend.KeyList{"here"}, false)
				if !isClosed(err) {
					t.Errorf("Exists: %v", err)
				}
			})
		}
		for name, call := range map[string]func() error{
			"Reset":       func() error { return c.Reset(context.Background()) },
			"Info":        func() error { _, err := c.Info(context.Background()); return err },
			"Keys":        func() error { _, _, err := c.Keys(context.Background(), 1); return err },
			"StatedLease": func() error { _, err := c.StatedLease(context.Background(), "here"); return err },
		} {
			callers.Go(func() {
				if err := call(); !isClosed(err) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, c.Close())
		callers.Wait()
		_, err := c.Exists(context.Background(), backend.KeyList{"here"}, false)
		require.True(t, isClosed(err), err)
		_, err = c.Info(context.Background())
		require.True(t, isClosed(err), err)
		require.NoError(t, c.Close())
	}
}

func isClosed(err error) bool {
	return err != nil && strings.Contains(err.Error(), "the client is closed")
}

// flakyReply drops, cuts or delays the reply of 15% of the requests.
func flakyReply(q *request, normal []byte) {
	switch rand.IntN(20) {
	case 0:
		q.Close()
	case 1:
		q.write(normal[:rand.IntN(len(normal))])
		q.Close()
	case 2:
		time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
		q.write(normal)
	default:
		q.write(normal)
	}
}

// TestFlakyMasters asks from many goroutines while masters fail and the leader changes. Every
// call returns the right answers or an error.
func TestFlakyMasters(t *testing.T) {
	masters := []*fakeMaster{startFake(t, loopback, FormTenant), startFake(t, loopback, FormKeys)}
	for _, f := range masters {
		f.setReply(flakyReply)
	}
	c := newClient(t, Config{Masters: []string{masters[0].addr, masters[1].addr}, Conns: 4})
	var good, bad atomic.Int64
	var callers sync.WaitGroup
	start := time.Now()
	running := func() bool {
		took := time.Since(start)
		return took < time.Second || took < testTimeout && (good.Load() <= 10 || bad.Load() == 0)
	}
	for range 8 {
		callers.Go(func() {
			for running() {
				keys, want := []string{"here", "nowhere", "there"}, []int{1, 0, 1}
				if n := rand.IntN(3); n > 0 {
					keys, want = keys[:n], want[:n]
				}
				timeout := 5 * time.Millisecond // some replies are late
				if time.Since(start) > time.Second {
					timeout = time.Second // all are, on a slow machine
				}
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				answers, err := c.Exists(ctx, backend.KeyList(keys), false)
				cancel()
				if err != nil {
					bad.Add(1)
				} else if good.Add(1); !slices.Equal(want, answers) {
					t.Errorf("%v for %v", answers, keys)
				}
			}
		})
	}
	callers.Go(func() {
		for i := 0; running(); i++ {
			time.Sleep(20 * time.Millisecond)
			masters[i%2].closeConns()
		}
	})
	callers.Wait()
	t.Logf("%d answers, %d errors", good.Load(), bad.Load())
	require.Greater(t, good.Load(), int64(10))
	require.Positive(t, bad.Load())
	for _, f := range masters {
		f.resetReply()
	}
	eventually(t, "a master leads", func() bool {
		_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"here"}, false)
		return err == nil
	})
	checkExists(t, c)
}
