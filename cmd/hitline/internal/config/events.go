package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hitline/hitline/cmd/internal/address"
	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/lookup/feed"
)

// Events configures the KV events of engines that fill pools over the memory backend.
type Events struct {
	Sources    []EventSource `yaml:"sources"`
	Register   []string      `yaml:"register"`    // endpoints that a source may be registered with; none: it is refused
	MaxPayload Size          `yaml:"max_payload"` // bytes of one batch
	MaxBlocks  int           `yaml:"max_blocks"`  // of one source
}

// EventSource is a publisher of KV events and the pool that it fills. As text it is tcp://host:port, that of
// the publisher, and optionally ,replay= with that of its replay socket.
type EventSource struct {
	Name        string   `yaml:"name"` // "": its endpoint
	Connect     string   `yaml:"connect"`
	Bind        string   `yaml:"bind"`
	Replay      string   `yaml:"replay"` // "": it has no replay socket
	Topic       string   `yaml:"topic"`
	Pool        string   `yaml:"pool"`  // "": the server's own
	Media       []string `yaml:"media"` // of which blocks count
	ExactCopies bool     `yaml:"exact_copies"`
	Timeout     Duration `yaml:"timeout"` // of a connection that says nothing, and of a replay; 0: the default
}

// knownMedia are those that engines name.
var knownMedia = []string{"GPU", "CPU", "STORAGE", "CPU_PINNED", "DISK", "EXTERNAL"}

const (
	// leastEventsTimeout leaves a heartbeat, a third of it, time to be answered.
	leastEventsTimeout = 100 * time.Millisecond
	mostEventsTimeout  = time.Hour
	// leastPayload is more than an event of a few blocks takes, mostPayload more than any batch.
	leastPayload, mostPayload = 4 << 10, 1 << 30
	// mostBlocks keeps the memory of a source within some hundred gigabytes.
	mostBlocks = 1 << 31
	// mostSourceName bounds names: they are labels of metrics, and stand in refusals.
	mostSourceName = 255
)

// setShort reads an endpoint as Flags.Events has it.
func (e *EventSource) setShort(s scalar) error {
	*e = EventSource{}
	if err := s.set(reflect.ValueOf(&e.Connect).Elem()); err != nil {
		return err
	}
	connect, options, more := strings.Cut(e.Connect, ",")
	if e.Connect = connect; !more {
		return nil
	}
	replay, ok := strings.CutPrefix(options, "replay=")
	if e.Replay = replay; !ok || replay == "" {
		return fmt.Errorf("%q: write tcp://host:port or tcp://host:port,replay=tcp://host:port", s.text)
	}
	return nil
}

// Endpoint returns the endpoint that a source connects to or binds.
func (e *EventSource) Endpoint() string {
	if e.Connect != "" {
		return e.Connect
	}
	return e.Bind
}

// setEvents makes the engine with these endpoints the only source of events.
func (c *Config) setEvents(text string) error {
	at := origin{name: "--events"}
	var source EventSource
	if err := source.setShort(scalar{text: text}); err != nil {
		return &problem{at: at, text: err.Error(), err: err}
	}
	c.origins.set("events.sources", at)
	c.Events.Sources = []EventSource{source}
	return nil
}

// checkEvents checks the sources and fills in their defaults.
func (c *Config) checkEvents() error {
	e := &c.Events
	if err := c.checkRanges([]span{
		{"events.max_payload", int64(e.MaxPayload), leastPayload, mostPayload},
		{"events.max_blocks", int64(e.MaxBlocks), 1, mostBlocks},
	}); err != nil {
		return err
	}
	switch {
	case len(e.Sources) == 0 && len(e.Register) == 0:
		return nil
	case c.Backend.Name() != "memory":
		return c.wrong("events", "events fill pools over the memory backend, and the backend is %s", c.Backend.Name())
	case len(e.Register) > 0 && c.Metrics == "":
		return c.wrong("events.register", "%s", needsMetrics)
	}
	e.Sources = slices.Clone(e.Sources)
	pools, names := map[string]bool{}, map[string]bool{}
	for i := range e.Sources {
		s, path := &e.Sources[i], fmt.Sprintf("events.sources[%d]", i)
		if err := c.checkEventSource(s, path); err != nil {
			return err
		}
		switch {
		case names[s.Name]:
			return c.wrong(path+".name", "%q is the name of a source before it", s.Name)
		case pools[s.Pool]:
			return c.wrong(path+".pool", "%s has a source before it; a pool takes one, as it stands for one engine", poolText(s.Pool))
		}
		names[s.Name], pools[s.Pool] = true, true
	}
	return nil
}

// poolText names a pool in an error.
func poolText(name string) string {
	if name == "" {
		return "the server's own pool"
	}
	return fmt.Sprintf("pool %q", name)
}

// checkEventSource checks one source and fills in its defaults.
func (c *Config) checkEventSource(s *EventSource, path string) error {
	if s.Connect != "" && s.Bind != "" {
		return c.wrong(path+".bind", "a source connects or binds, not both; remove connect or bind")
	}
	*s = s.WithDefaults()
	if field, err := s.check(); err != nil {
		return c.wrong(path+"."+field, "%v", err)
	}
	if _, named := c.Pools[s.Pool]; s.Pool != "" && !named {
		return c.wrong(path+".pool", "there is no pool %q; configure it under pools", s.Pool)
	} else if s.Pool == "" && !c.ServesPool() {
		return c.wrong(path+".pool", "the server has no pool of its own; name one of pools, or configure pool")
	}
	return nil
}

// WithDefaults returns the source with its defaults filled in.
func (e EventSource) WithDefaults() EventSource {
	if e.Name == "" {
		e.Name = e.Endpoint()
	}
	if len(e.Media) == 0 {
		e.Media = slices.Clone(feed.DefaultMedia)
	}
	if e.Timeout == 0 {
		e.Timeout = Duration(events.DefaultTimeout)
	}
	return e
}

// CheckRegistered returns what is wrong with a source that a client registers, beside its pool.
func (e EventSource) CheckRegistered() error {
	field, err := e.check()
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// check returns the first field that is wrong, and why.
func (e *EventSource) check() (field string, err error) {
	if e.Endpoint() == "" {
		return "connect", errors.New("is missing; give the publisher's endpoint, such as tcp://127.0.0.1:5557, or bind")
	}
	for _, endpoint := range []struct {
		field, text string
		binds       bool
	}{{"connect", e.Connect, false}, {"bind", e.Bind, true}, {"replay", e.Replay, false}} {
		if err := checkEndpoint(endpoint.text, endpoint.binds); endpoint.text != "" && err != nil {
			return endpoint.field, err
		}
	}
	if err := checkSourceName(e.Name); err != nil {
		return "name", err
	}
	if err := checkMedia(e.Media); err != nil {
		return "media", err
	}
	if d := time.Duration(e.Timeout); d < leastEventsTimeout || d > mostEventsTimeout {
		return "timeout", fmt.Errorf("%v is not %v to %v", d, leastEventsTimeout, mostEventsTimeout)
	}
	return "", nil
}

// checkMedia returns an error if a medium is none that engines name.
func checkMedia(media []string) error {
	for _, m := range media {
		if !slices.Contains(knownMedia, m) {
			return fmt.Errorf("unknown medium %q; known are %s", m, strings.Join(knownMedia, ", "))
		}
	}
	return nil
}

// checkSourceName returns an error if a source cannot have this name.
func checkSourceName(name string) error {
	if name == "" || len(name) > mostSourceName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }) {
		return fmt.Errorf("the name of a source is 1 to %d printable ASCII characters without spaces and double quotes", mostSourceName)
	}
	return nil
}

var errEndpoint = errors.New("write tcp://host:port or ipc:///path")

// checkEndpoint returns an error if ZeroMQ knows no such endpoint. One that is bound may have * as its host.
func checkEndpoint(text string, binds bool) error {
	if !strings.HasPrefix(text, "tcp://") && !strings.HasPrefix(text, "ipc://") {
		return fmt.Errorf("%q is no endpoint; %w", text, errEndpoint)
	}
	checked := text
	if binds {
		checked = strings.Replace(text, "tcp://*:", "tcp://0.0.0.0:", 1)
	}
	a, err := address.Parse(checked)
	switch {
	case err != nil:
		return err
	case a.Path == "" && a.Port == 0:
		return fmt.Errorf("%q has port 0; give the port of the publisher", text)
	}
	return nil
}

// eventsWarnings warns of a snapshot that would have nothing to keep.
func (c *Config) eventsWarnings() []string {
	fed := map[string]bool{}
	for _, s := range c.Events.Sources {
		fed[s.Pool] = true
	}
	served := len(c.Pools)
	if c.ServesPool() {
		served++
	}
	if c.Accepts() || len(fed) < served {
		return nil
	}
	return []string{c.wrong("backend.memory.snapshot.path", "has no effect: events fill every pool, and none of these is kept").Error()}
}
