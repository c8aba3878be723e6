package main

import (
	"bufio"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hitline/hitline/internal/storetest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A server whose log is on a full disk answers, and stops at a signal.
func TestServeWithTheLogOnAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	address := storetest.FreeAddr(t)
	cmd := programIn(t, ":", "serve", "--listen", "tcp://"+address, "--config", configFile(t, "log: {level: debug}\n"))
	cmd.Stdout, cmd.Stderr = full, full
	require.NoError(t, cmd.Start())
	for range 20 { // each connection is logged at this level
		storetest.Eventually(t, "it answers", func() bool {
			return hitline(t, "", "ping", "--connect", "tcp://"+address).code == exitDone
		})
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	assert.NoError(t, cmd.Wait())
}

// A server whose log is a full pipe answers, and stops at a signal.
func TestServeWithAFullLog(t *testing.T) {
	cmd, reader, writer := startProgram(t, "log: {format: json, level: debug}\n")
	address := readyLine(t, bufio.NewScanner(reader))
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		_, _ = io.Copy(writer, strings.NewReader(strings.Repeat("x", 4<<20))) // ends when reader is closed
	}()
	defer func() { _ = reader.Close(); <-filled }()
	fd := int(reader.Fd())
	size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		return err == nil && n > size-os.Getpagesize()
	}, 20*time.Second, time.Millisecond, "the pipe is full")
	for range 20 { // each connection is logged at this level
		conn, err := net.Dial("tcp", strings.TrimPrefix(address, "tcp://"))
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		_, err = io.WriteString(conn, "\x00\x04ping")
		require.NoError(t, err)
		reply := make([]byte, 3)
		_, err = io.ReadFull(conn, reply)
		require.NoError(t, err, "the log keeps the server from answering")
		conn.Close()
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	assert.NoError(t, cmd.Wait())
}
