//go:build linux && hitline_attack

package attack

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hitline/hitline/internal/eventstest"
)

// Bystanders are peers that make no lookups: one asks for /health, one makes handshakes of TLS, and one is an engine whose
// events a router waits for. Each has an address of its own, and does one thing after the other.
type bystanders struct {
	publisher *eventstest.Publisher
	all       []*bystander
	stopped   atomic.Bool
	running   sync.WaitGroup
}

// bystander is one of them, with how long it has waited at most.
type bystander struct {
	name    string
	do      func() error
	longest time.Duration
	err     error
}

const (
	// bystanderPause is how long a bystander does nothing before the next time.
	bystanderPause = 20 * time.Millisecond
	eventModel     = "events" // that the engine serves
	eventEngine    = "engine"
)

// newBystanders returns those of a server that is started with spec, which gets a TLS listener and the engine.
func newBystanders(t *testing.T, spec *serverSpec) *bystanders {
	b := &bystanders{publisher: eventstest.New(t)}
	text, err := os.ReadFile(configs[true])
	if err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(string(text), "models: [", fmt.Sprintf("models: [{name: %s, block_size: %d}, ", eventModel, blockTokens), 1)
	config = strings.Replace(config, "listen: [", fmt.Sprintf("listen: [%s, ", strings.Replace(listenTLS, "127.0.0.1", "127.0.0.5", 1)), 1)
	config += fmt.Sprintf("  sources: [{instance_id: %s, model: %s, endpoint: %q, replay_endpoint: %q}]\n",
		eventEngine, eventModel, b.publisher.Endpoint, b.publisher.Replay)
	spec.config = t.TempDir() + "/hitline.yaml"
	if err := os.WriteFile(spec.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

// start makes the bystanders use a server until stop. What each does first may take long.
func (b *bystanders) start(server *serverProcess) {
	scheme := "http://"
	if *overTLS {
		scheme = "https://"
	}
	router := scheme + server.router
	asker, engine := clientFrom("127.0.0.2"), clientFrom("127.0.0.4")
	b.all = []*bystander{
		{name: "/health", do: func() error { return ask(asker, router+"/health", "") }},
		{name: "handshake", do: func() error {
			conn, err := dialWith(dialerFrom("127.0.0.3"), server.secure)
			if err == nil {
				conn.Close()
			}
			return err
		}},
		{name: "event", do: func() error { return b.awaitEvent(engine, router) }},
	}
	for _, one := range b.all {
		one.err = one.do()
		b.running.Go(func() {
			for !b.stopped.Load() && one.err == nil {
				begin := time.Now()
				one.err = one.do()
				one.longest = max(one.longest, time.Since(begin))
				time.Sleep(bystanderPause)
			}
		})
	}
}

// stop ends the bystanders. It returns their longest waits by name, or the first error.
func (b *bystanders) stop() (map[string]time.Duration, error) {
	b.stopped.Store(true)
	b.running.Wait()
	waits := map[string]time.Duration{}
	for _, one := range b.all {
		if one.err != nil {
			return nil, fmt.Errorf("attack: %s: %w", one.name, one.err)
		}
		waits[one.name] = one.longest
	}
	return waits, nil
}

// awaitEvent publishes a block, and asks for its holder until there is one.
func (b *bystanders) awaitEvent(client *http.Client, router string) error {
	hash := randomBytes(time.Now().String(), 32)
	b.publisher.Publish(false, eventstest.Stored(nil, hash))
	body := fmt.Sprintf(`{"model":%q,"seq_hashes":["%x"]}`, eventModel, hash)
	for end := time.Now().Add(lastAnswers); ; time.Sleep(time.Millisecond) {
		switch err := ask(client, router+"/query_by_hash", body); {
		case err == nil:
			return nil
		case err != errNoHolder || time.Now().After(end):
			return err
		}
	}
}

// errNoHolder says that nobody is known to have a block.
var errNoHolder = fmt.Errorf("attack: nobody has the block")

// ask sends a request, with a body a query, and reads the reply.
func ask(client *http.Client, url, body string) error {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("attack: %s: %s", response.Status, reply)
	case body != "" && !bytes.Contains(reply, []byte(`"longest_matched"`)):
		return errNoHolder
	}
	return nil
}

// dialerFrom returns a dialer of an address of loopback.
func dialerFrom(address string) *net.Dialer {
	return &net.Dialer{Timeout: lastAnswers, LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
}

// clientFrom returns a client of an address of loopback. Each of its requests has a connection of its own.
func clientFrom(address string) *http.Client {
	return &http.Client{Timeout: lastAnswers, Transport: &http.Transport{
		DialContext: dialerFrom(address).DialContext, DisableKeepAlives: true, TLSClientConfig: anyServer(),
	}}
}
