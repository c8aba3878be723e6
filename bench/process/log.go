package process

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
)

// serverLog takes what a server prints, finds the line that says it is ready and
// keeps the last one.
type serverLog struct {
	find  func(line []byte) (addr string, ready bool)
	ready chan string // room for one

	mu   sync.Mutex
	text []byte // what is not yet a line
	line string // the last one
}

// Write implements io.Writer.
func (l *serverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	for {
		line, rest, whole := bytes.Cut(l.text, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.take(line)
		l.text = rest
	}
}

// take takes a whole line.
func (l *serverLog) take(line []byte) {
	l.line = strings.TrimSpace(string(line))
	addr, ready := l.find(line)
	if !ready {
		return
	}
	select {
	case l.ready <- addr:
	default: // said twice
	}
}

// last returns the last line.
func (l *serverLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line == "" {
		return "it said nothing"
	}
	return l.line
}

// hitlineReady finds the first address in hitline's ready line.
func hitlineReady(line []byte) (addr string, ready bool) {
	var entry struct {
		Msg    string
		Listen []string
	}
	if json.Unmarshal(line, &entry) != nil || entry.Msg != "ready" || len(entry.Listen) == 0 {
		return "", false
	}
	return entry.Listen[0], true
}
