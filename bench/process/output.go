//go:build linux

package process

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
)

// output takes what a program prints, finds the line that says it is ready and keeps the last
// lines. Safe for concurrent use.
type output struct {
	find  func(line []byte) (addr string, ready bool) // nil: nothing is waited for
	ready chan string                                 // has room for one

	mu   sync.Mutex
	text []byte // what is not yet a line
	line string // the last one
	own  string // the last one that is not a library's
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	for {
		line, rest, whole := bytes.Cut(o.text, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		o.take(line)
		o.text = rest
	}
}

// libraryLine begins a line that glog writes, the first one of all included. Programs in Python
// print many that say nothing of why they end.
var libraryLine = regexp.MustCompile(`^([IWEF]\d{4} |WARNING: Logging before )`)

// take takes a whole line.
func (o *output) take(line []byte) {
	if text := strings.TrimSpace(string(line)); text != "" {
		o.line = text
		if !libraryLine.MatchString(text) {
			o.own = text
		}
	}
	if o.find == nil {
		return
	}
	addr, ready := o.find(line)
	if !ready {
		return
	}
	select {
	case o.ready <- addr:
	default: // said twice
	}
}

// last returns the last line, and of a server's that of a library too.
func (o *output) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	line := o.own
	if o.find != nil {
		line = o.line
	}
	return cmp.Or(line, o.line, "it said nothing")
}

// hitlineReady finds the first address in hitline's ready line.
func hitlineReady(line []byte) (addr string, ready bool) {
	addr, _, ready = ReadReady(line)
	return addr, ready
}

// ReadReady finds the first address in hitline's ready line, and that of its metrics and page, "" without one.
func ReadReady(line []byte) (addr, metrics string, ready bool) {
	var entry struct {
		Msg, Metrics string
		Listen       []string
	}
	if json.Unmarshal(line, &entry) != nil || entry.Msg != "ready" || len(entry.Listen) == 0 {
		return "", "", false
	}
	return entry.Listen[0], entry.Metrics, true
}
