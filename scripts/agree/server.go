//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

const (
	startTimeout = 30 * time.Second
	blockTokens  = 16 // that a hash covers in the server's pool
)

// server is a hitline serve that was started.
type server struct {
	*child
	addr string // host:port
}

// startServer starts a server with one full-attention group, which holds so many entries without
// evicting any, and waits until it is ready. It has its defaults otherwise: variables that
// configure hitline are not passed on, but for the choice of kernels.
func startServer(ctx context.Context, path string, entries int, cores []int) (*server, error) {
	cmd := exec.Command(path, "serve", "--listen", "tcp://127.0.0.1:0", "--backend", "memory", "--block-size", strconv.Itoa(blockTokens))
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "HITLINE_") || strings.HasPrefix(variable, "HITLINE_KERNEL=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	bound := max(1<<30, 128*entries) // more bytes than the entries take
	cmd.Env = append(cmd.Env, "HITLINE_LOG_FORMAT=json", "HITLINE_BACKEND_MEMORY_MAX_BYTES="+strconv.Itoa(bound))
	return startReady(ctx, cmd, cores)
}

// startReady starts a command and waits until it says where it listens.
func startReady(ctx context.Context, cmd *exec.Cmd, cores []int) (*server, error) {
	log := &serverLog{ready: make(chan string, 1)}
	cmd.Stdout, cmd.Stderr = log, log
	c, err := startOn(cores, cmd)
	if err != nil {
		return nil, fmt.Errorf("%w; `make build` builds it", err)
	}
	s := &server{child: c}
	select {
	case s.addr = <-log.ready:
		return s, nil
	case <-c.exited:
		err = fmt.Errorf("agree: %s ended (%v) before it was ready: %s", cmd.Path, cmd.ProcessState, log.lastLine())
	case <-time.After(startTimeout):
		err = fmt.Errorf("agree: %s is not ready after %v: %s", cmd.Path, startTimeout, log.lastLine())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.kill()
	return nil, err
}

// serverLog takes what a server prints. It finds the line that says where the server listens.
type serverLog struct {
	ready chan string // room for one

	mu   sync.Mutex
	text []byte // what is not yet a line
	line []byte // the last one
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
		l.line, l.text = bytes.Clone(line), rest
		var entry struct {
			Msg    string
			Listen []string
		}
		if json.Unmarshal(line, &entry) != nil || entry.Msg != "ready" || len(entry.Listen) == 0 {
			continue
		}
		_, addr, _ := strings.Cut(entry.Listen[0], "://")
		select {
		case l.ready <- addr:
		default: // said twice
		}
	}
}

// lastLine returns the last line of the log.
func (l *serverLog) lastLine() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.line)
}

// readStat returns the server's counters.
func readStat(ctx context.Context, c *client.Client) (stat api.Stat, err error) {
	document, err := c.Stat(ctx)
	if err != nil {
		return stat, fmt.Errorf("agree: cannot read the counters: %w", err)
	}
	return stat, json.Unmarshal(document, &stat)
}
