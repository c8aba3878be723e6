package redis

import (
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// TestReplyMemory has many connections hold large replies at a time: at last one is refused. A
// new request and Close free the memory of a connection.
func TestReplyMemory(t *testing.T) {
	var all replyMemory
	var open []*replyScanner
	var refused error
	large := []byte("*7\r\n" + strings.Repeat("$1048576\r\n"+strings.Repeat("x", 1<<20)+"\r\n", 7))
	for refused == nil {
		memory, err := all.open()
		require.Nil(t, err)
		s := &replyScanner{memory: memory}
		if err := s.scan(large); err != nil {
			refused = err
		}
		open = append(open, s)
		require.Less(t, len(open), 100)
	}
	require.ErrorContains(t, refused, "more than 268435456 bytes at a time on all connections")
	require.Greater(t, len(open), maxReplyMemory/maxReplyBytes)
	require.LessOrEqual(t, all.bytes.Load(), int64(maxReplyMemory))

	small := &replyScanner{memory: &connMemory{all: &all}}
	require.Nil(t, small.scan([]byte(strings.Repeat(":1\r\n", readBatch))), "a lookup needs none of it")

	open[0].reset()
	require.Nil(t, (&replyScanner{memory: open[0].memory}).scan(large), "it was freed")
	for _, s := range open {
		s.memory.close()
		s.memory.close()
		require.Nil(t, s.memory.grow(1<<30), "a closed connection has none")
	}
	require.Zero(t, all.bytes.Load())
	require.Zero(t, all.conns.Load())
}

// TestReplyMemoryOfAnnouncements counts what is announced and has not come.
func TestReplyMemoryOfAnnouncements(t *testing.T) {
	for _, header := range []string{"$1048576\r\n", "*65000\r\n", "%32000\r\n"} {
		var all replyMemory
		memory, _ := all.open()
		s := &replyScanner{memory: memory}
		require.Nil(t, s.scan([]byte(header)))
		require.Greater(t, all.bytes.Load(), int64(400<<10), header)
		s.reset()
		require.Zero(t, all.bytes.Load(), header)
	}
}

// TestMaxOpenConns has as many connections as are allowed: no more are made until one is
// closed.
func TestMaxOpenConns(t *testing.T) {
	var d dialer
	addr := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	d.replies.conns.Store(maxOpenConns - 1)
	conn, err := d.dial(testContext(t), "tcp", addr)
	require.NoError(t, err)
	_, err = d.dial(testContext(t), "tcp", addr)
	require.ErrorContains(t, err, "4096 connections are open")
	require.NoError(t, conn.Close())
	_, err = d.dial(testContext(t), "tcp", "127.0.0.1:1")
	require.ErrorContains(t, err, "refused")
	conn, err = d.dial(testContext(t), "tcp", addr)
	require.NoError(t, err)
	require.EqualValues(t, maxOpenConns, d.replies.conns.Load())
	_ = conn // it is not closed, and nothing has it any more
	conn = nil
	storetest.Eventually(t, "it is not counted", func() bool {
		runtime.GC()
		return d.replies.conns.Load() == maxOpenConns-1
	})
}
