package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hitline/hitline/router/events/internal/zmtp"
)

// Listeners are the endpoints that sources bind. Sources with different topics may bind one endpoint. A publisher belongs to
// the source with the longest topic that the topic of its first batch begins with. The zero value has no endpoint. Safe for
// concurrent use.
type Listeners struct {
	mu        sync.Mutex // taken before that of an acceptor
	acceptors map[string]*acceptor
}

// acceptor accepts the publishers at an endpoint. A source has one publisher at a time. Others are closed at once, and ZeroMQ
// connects again.
type acceptor struct {
	listener net.Listener
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	sources []*binding
	pending []io.Closer // publishers of which no batch has come yet
}

// binding is a source at an acceptor.
type binding struct {
	listeners *Listeners
	acceptor  *acceptor
	endpoint  string
	topic     string
	timeout   time.Duration
	accepted  chan arrival   // unbuffered: whoever comes while nobody waits is refused
	refused   func(net.Addr) // is called for each connection that is refused
}

// arrival is a connection of a publisher. The source that takes it calls open, with its own configuration.
type arrival struct {
	from net.Addr
	open func(context.Context, zmtp.Config) (*zmtp.Conn, error)
}

// bind binds the endpoint of a source, or adds the source to those that have.
func (l *Listeners) bind(cfg *Config, refused func(net.Addr)) (*binding, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &binding{
		listeners: l, endpoint: cfg.Endpoint, topic: cfg.Topic, timeout: cfg.Timeout, accepted: make(chan arrival), refused: refused,
	}
	if b.acceptor = l.acceptors[cfg.Endpoint]; b.acceptor == nil {
		a, err := listen(cfg.Endpoint)
		if err != nil {
			return nil, err
		}
		if l.acceptors == nil {
			l.acceptors = map[string]*acceptor{}
		}
		l.acceptors[cfg.Endpoint], b.acceptor = a, a
		ctx, cancel := context.WithCancel(context.Background())
		a.cancel, a.sources = cancel, []*binding{b}
		a.running.Go(func() { a.run(ctx) })
		return b, nil
	}
	return b, b.acceptor.add(b)
}

// add adds a source. Pending publishers are closed, so that they connect again: they do not send the new source's topic.
func (a *acceptor) add(b *binding) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	isEqual := func(other *binding) bool { return b.topic == "" || other.topic == "" || other.topic == b.topic }
	if slices.ContainsFunc(a.sources, isEqual) {
		return invalid("endpoint", "%q is bound by another source; give each of them a topic of its own", b.endpoint)
	}
	a.sources = append(a.sources, b)
	for _, c := range a.pending {
		_ = c.Close()
	}
	return nil
}

// close removes the source. With the last one the listener is closed. It may be called more than once.
func (b *binding) close() {
	a := b.acceptor
	b.listeners.mu.Lock()
	a.mu.Lock()
	a.sources = slices.DeleteFunc(a.sources, func(other *binding) bool { return other == b })
	isLast := len(a.sources) == 0
	a.mu.Unlock()
	if isLast && b.listeners.acceptors[b.endpoint] == a {
		a.cancel()
		a.running.Wait()
		delete(b.listeners.acceptors, b.endpoint)
	}
	b.listeners.mu.Unlock()
}

// listen binds an endpoint.
func listen(endpoint string) (*acceptor, error) {
	network, address, err := zmtp.ListenAddress(endpoint)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen(network, address)
	if errors.Is(err, syscall.EADDRINUSE) && network == "unix" && removeDeadSocket(address) {
		l, err = net.Listen(network, address)
	}
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return &acceptor{listener: l}, nil
}

// removeDeadSocket removes the file of a unix socket that nobody listens on: one that a killed
// process has left. It reports whether it did.
func removeDeadSocket(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED) && os.Remove(path) == nil
}

// run accepts until ctx ends, when it closes the listener.
func (a *acceptor) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = a.listener.Close() })
	defer stop()
	for {
		conn, err := a.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			sleep(ctx, minBackOff) // there may be no free file descriptor
			continue
		}
		if b := a.only(); b != nil {
			b.deliver(conn, arrival{conn.RemoteAddr(), func(ctx context.Context, cfg zmtp.Config) (*zmtp.Conn, error) {
				return zmtp.Accept(ctx, conn, cfg)
			}})
		} else {
			a.running.Go(func() { a.sort(ctx, conn) })
		}
	}
}

// only returns the source if it is the only one and has no topic: then all publishers are its own. Otherwise it returns nil.
func (a *acceptor) only() *binding {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.sources) == 1 && a.sources[0].topic == "" {
		return a.sources[0]
	}
	return nil
}

// deliver gives a source a connection, or closes it.
func (b *binding) deliver(conn io.Closer, from arrival) {
	select {
	case b.accepted <- from:
	default:
		b.refused(from.from)
		_ = conn.Close()
	}
}

// sort waits for the first batch of a publisher, and gives the connection to the source of its topic.
func (a *acceptor) sort(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	topics, timeout := a.addPending(conn)
	defer a.removePending(conn)
	c, err := zmtp.Accept(ctx, conn, zmtp.Config{SocketType: zmtp.SUB, Timeout: timeout})
	for i := 0; i < len(topics) && err == nil; i++ {
		err = c.Subscribe(topics[i])
	}
	var topic []byte
	if err == nil {
		topic, err = c.PeekFrame(maxEnvelope)
	}
	b := a.find(string(topic))
	if err != nil || b == nil {
		_ = conn.Close()
		return
	}
	b.deliver(conn, arrival{conn.RemoteAddr(), func(_ context.Context, cfg zmtp.Config) (*zmtp.Conn, error) {
		c.Configure(cfg)
		return c, nil
	}})
}

// maxPending is how many publishers may wait for their first batch, beyond two of each source.
const maxPending = 16

// addPending adds a connection to those that wait, or closes it if there are too many. It returns the topics of the sources.
func (a *acceptor) addPending(conn net.Conn) (topics []string, timeout time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.sources {
		topics, timeout = append(topics, b.topic), max(timeout, b.timeout)
	}
	if len(a.pending) >= 2*len(a.sources)+maxPending {
		_ = conn.Close()
	}
	a.pending = append(a.pending, conn)
	return topics, timeout
}

func (a *acceptor) removePending(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = slices.DeleteFunc(a.pending, func(c io.Closer) bool { return c == conn })
}

// find returns the source of a topic, nil if there is none.
func (a *acceptor) find(topic string) (found *binding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.sources {
		if strings.HasPrefix(topic, b.topic) && (found == nil || len(b.topic) > len(found.topic)) {
			found = b
		}
	}
	return found
}

// owns reports whether a topic is the source's: another one, with a longer topic, may have come after the publisher did.
func (b *binding) owns(topic []byte) bool { return b.acceptor.find(string(topic)) == b }

// accept waits for a publisher and does the handshake.
func (b *binding) accept(ctx context.Context, cfg zmtp.Config) (*zmtp.Conn, error) {
	select {
	case from := <-b.accepted:
		return from.open(ctx, cfg)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
