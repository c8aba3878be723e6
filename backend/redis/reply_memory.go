package redis

import (
	"fmt"
	"sync"
	"sync/atomic"
)

const (
	// maxOpenConns bounds the connections to all servers. A cluster names its own nodes, and the
	// driver has up to 64 KiB of buffers for each connection. 40 connections to each of 100
	// nodes are below it.
	maxOpenConns = 4096
	// freeReplyBytes is the part of the memory of replies that each connection has by itself:
	// more than the replies to readBatch commands of a lookup take.
	freeReplyBytes = 512 << 10
	// maxReplyMemory bounds the memory of replies beyond freeReplyBytes, of all connections
	// together. Only keys of SCAN and many errors take any of it.
	maxReplyMemory = 256 << 20
	// elementBytes is what the driver allocates for an element that is announced.
	elementBytes = 16
)

// replyMemory counts the connections of a dialer and the memory of the replies on them. Safe
// for concurrent use.
type replyMemory struct{ conns, bytes atomic.Int64 }

// open counts a connection. It returns an error if there are too many.
func (m *replyMemory) open() (*connMemory, *scanError) {
	if n := m.conns.Add(1); n > maxOpenConns {
		m.conns.Add(-1)
		return nil, &scanError{fmt.Sprintf("%d connections are open, and no more are made: has the cluster so many nodes?", maxOpenConns)}
	}
	return &connMemory{all: m}, nil
}

// connMemory is the part of one connection. Its methods may run while another goroutine closes
// the connection.
type connMemory struct {
	all *replyMemory

	mu     sync.Mutex
	bytes  int64 // beyond freeReplyBytes
	closed bool
}

// grow makes total the memory of the replies to the present request, if it is more than
// before. It returns an error if all connections would hold too much.
func (m *connMemory) grow(total int64) *scanError {
	m.mu.Lock()
	defer m.mu.Unlock()
	more := total - freeReplyBytes - m.bytes
	if more <= 0 || m.closed {
		return nil
	}
	if m.all.bytes.Add(more) > maxReplyMemory {
		m.all.bytes.Add(-more)
		return &scanError{fmt.Sprintf("the servers sent more than %d bytes at a time on all connections", maxReplyMemory)}
	}
	m.bytes += more
	return nil
}

// reset frees the memory: the replies to a request were read.
func (m *connMemory) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all.bytes.Add(-m.bytes)
	m.bytes = 0
}

// close frees the memory and uncounts the connection. It may be called twice.
func (m *connMemory) close() {
	m.reset()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		m.all.conns.Add(-1)
	}
}
