package events

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hitline/hitline/internal/fielderror"
	"github.com/stretchr/testify/require"
)

func newManager(t *testing.T, allow ...string) *Manager {
	t.Helper()
	m, err := NewManager(ManagerConfig{Allow: allow, MaxSources: 2})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

func newSet(cfg Config) (Holder, error) { return newTestSet(), nil }

func names(m *Manager) (list []string) {
	for _, s := range m.Sources() {
		list = append(list, s.Name)
	}
	return list
}

func TestManagerFollows(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	p.publish(storedBatch(1), true)
	m := newManager(t)
	require.NoError(t, m.Add(p.config(), newSet))
	eventually(t, func() bool { return m.Sources()[0].Blocks == 1 })
	m.Close()
	m.Close()
	require.True(t, m.Sources()[0].Stale)
	require.ErrorIs(t, m.Add(p.config(), newSet), ErrClosed)
}

func TestManagerNames(t *testing.T) {
	noLeak(t)
	m := newManager(t, "tcp://127.0.0.0/8:*")
	add := func(name string) Config { return Config{Name: name, Endpoint: "tcp://127.0.0.1:1"} }
	require.NoError(t, m.Add(add("b"), newSet))
	require.NoError(t, m.Register(add("a"), newSet))
	require.NoError(t, m.Register(add(""), newSet)) // its endpoint
	require.Equal(t, []string{"a", "b", "tcp://127.0.0.1:1"}, names(m))
	require.ErrorIs(t, m.Register(add("a"), newSet), ErrExists)
	require.ErrorIs(t, m.Add(add("a"), newSet), ErrExists)
	require.ErrorIs(t, m.Register(add("b"), newSet), ErrExists)
	require.ErrorIs(t, m.Register(add("c"), newSet), ErrTooMany)
	require.NoError(t, m.Add(add("c"), newSet), "the bound is one of those that are registered")

	require.ErrorIs(t, m.Unregister("b"), ErrConfigured)
	require.ErrorIs(t, m.Unregister("d"), ErrNoSource)
	require.NoError(t, m.Unregister("a"))
	require.ErrorIs(t, m.Unregister("a"), ErrNoSource)
	require.Equal(t, []string{"b", "c", "tcp://127.0.0.1:1"}, names(m))
	require.NoError(t, m.Register(add("a"), newSet))
}

// A name is free again after whatever went wrong.
func TestManagerErrors(t *testing.T) {
	noLeak(t)
	fail := errors.New("no pool of this name")
	var calls atomic.Int64
	newHolder := func(Config) (Holder, error) {
		if calls.Add(1) == 1 {
			return nil, fail
		}
		return newTestSet(), nil
	}
	m, err := NewManager(ManagerConfig{})
	require.NoError(t, err)
	defer m.Close()
	require.ErrorIs(t, m.Add(Config{Name: "a"}, newHolder), fielderror.ErrConfig)
	require.ErrorIs(t, m.Add(Config{Name: "a", Endpoint: "tcp://127.0.0.1:1"}, newHolder), fail)
	require.NoError(t, m.Add(Config{Name: "a", Endpoint: "tcp://127.0.0.1:*", Bind: true}, newHolder))
	address := m.sources["a"].follower.acceptor.listener.Addr().String()
	require.Error(t, m.Add(Config{Name: "b", Endpoint: "tcp://" + address, Bind: true}, newHolder))
	require.Equal(t, []string{"a"}, names(m))
	require.ErrorIs(t, m.Register(Config{Name: "b", Endpoint: "tcp://127.0.0.1:1"}, newHolder), ErrNotAllowed)

	require.Error(t, m.Add(Config{Name: "b", Endpoint: "tcp://127.0.0.1:1"}, nil))
	require.Equal(t, []string{"a"}, names(m))
	_, err = NewManager(ManagerConfig{MaxSources: -1})
	require.Error(t, err)
	_, err = NewManager(ManagerConfig{Allow: []string{"anything"}})
	require.ErrorContains(t, err, "anything")

	m.Close() // it has waited for the source, so that no other call may
	require.ErrorIs(t, m.Unregister("a"), ErrClosed)
	require.ErrorIs(t, m.Add(Config{Name: "c", Endpoint: "tcp://127.0.0.1:1"}, newHolder), ErrClosed)
}

func TestManagerAllows(t *testing.T) {
	list, err := newAllowList([]string{
		"tcp://10.0.0.0/8:5557-5564", "tcp://[fd00::/8]:*", "tcp://Engine-0:5557", "tcp://192.168.1.2:1", "tcp://[::1]:7", "ipc:///run/engine.sock",
	})
	require.NoError(t, err)
	for endpoint, want := range map[string]bool{
		"tcp://10.1.2.3:5557":          true,
		"tcp://10.1.2.3:5564":          true,
		"tcp://[::ffff:10.1.2.3]:5557": true,
		"tcp://10.1.2.3:5556":          false,
		"tcp://10.1.2.3:5565":          false,
		"tcp://11.1.2.3:5557":          false,
		"tcp://[fd12::1]:65535":        true,
		"tcp://[fe80::1]:5557":         false,
		"tcp://[fd12::1%eth0]:5557":    false,
		"tcp://engine-0:5557":          true,
		"tcp://ENGINE-0:5557":          true,
		"tcp://engine-0:5558":          false,
		"tcp://engine-0.evil.com:5557": false,
		"tcp://engine-1:5557":          false,
		"tcp://localhost:5557":         false,
		"tcp://192.168.1.2:1":          true,
		"tcp://192.168.1.3:1":          false,
		"tcp://[::1]:7":                true,
		"tcp://[::1]:8":                false,
		"tcp://10.1.2.3":               false,
		"ipc:///run/engine.sock":       true,
		"ipc:///run/engine.sock2":      false,
		"ipc://@engine":                false,
		"http://10.1.2.3:5557":         false,
		"tcp://0xa.1.2.3:5557":         false,
		"tcp://167838211:5557":         false,
	} {
		require.Equal(t, want, list.allows(endpoint), endpoint)
	}
	for _, entry := range []string{"", "10.0.0.0/8:1", "tcp://10.0.0.0/8", "tcp://10.0.0.0/33:1", "tcp://*:1", "tcp://:1", "tcp://a:0",
		"tcp://a:2-1", "tcp://a:1-65536", "tcp://a:x", "tcp://[fe80::1%eth0]:1", "ipc://", "http://a:1"} {
		_, err := newAllowList([]string{entry})
		require.Error(t, err, entry)
	}

	m := newManager(t, "tcp://127.0.0.1:1")
	ok := "tcp://127.0.0.1:1"
	require.ErrorIs(t, m.Register(Config{Endpoint: "tcp://127.0.0.1:2"}, newSet), ErrNotAllowed)
	require.ErrorIs(t, m.Register(Config{Endpoint: ok, Replay: "tcp://127.0.0.1:2"}, newSet), ErrNotAllowed)
	require.ErrorIs(t, m.Register(Config{Endpoint: ok, Bind: true}, newSet), ErrNotAllowed)
	for _, malformed := range []string{"", "tcp://", "tcp://127.0.0.1", "127.0.0.1:1", "http://127.0.0.1:1", "nonsense"} {
		require.ErrorIs(t, m.Register(Config{Endpoint: malformed}, newSet), fielderror.ErrConfig, malformed)
		if malformed != "" {
			require.ErrorIs(t, m.Register(Config{Endpoint: ok, Replay: malformed}, newSet), fielderror.ErrConfig, malformed)
		}
	}
	require.NoError(t, m.Register(Config{Endpoint: ok, Replay: ok}, newSet))
}

// Sources come and go at once; the bound and the names hold.
func TestManagerConcurrently(t *testing.T) {
	noLeak(t)
	m := newManager(t, "tcp://127.0.0.1:*")
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			name := fmt.Sprint(i % 4)
			for range 20 {
				if m.Register(Config{Name: name, Endpoint: "tcp://127.0.0.1:1"}, newSet) == nil {
					if n := len(m.Sources()); n > 2 {
						t.Errorf("%d sources", n)
					}
					_ = m.Unregister(name)
				}
			}
		})
	}
	running.Wait()
	require.Empty(t, m.Sources())
	require.Zero(t, m.registered)
	require.NoError(t, m.Register(Config{Name: "0", Endpoint: "tcp://127.0.0.1:1"}, newSet))
}

// Sources are unregistered while the manager closes: with -race this failed in most runs.
func TestManagerClosesWhileSourcesGo(t *testing.T) {
	noLeak(t)
	for range 200 {
		m := newManager(t, "tcp://127.0.0.1:*")
		require.NoError(t, m.Register(Config{Name: "a", Endpoint: "tcp://127.0.0.1:1"}, newSet))
		require.NoError(t, m.Register(Config{Name: "b", Endpoint: "tcp://127.0.0.1:1"}, newSet))
		var running sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			running.Go(func() {
				if err := m.Unregister(name); err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		}
		running.Go(m.Close)
		running.Wait()
		require.ErrorIs(t, m.Unregister("a"), ErrClosed)
	}
}
