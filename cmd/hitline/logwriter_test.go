package main

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A log without a reader does not block, and has the number of dropped lines later.
func TestLogThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		logger, closeLog := openLog(writer, "text", slog.LevelInfo)
		for i := range maxQueuedLines + 11 {
			logger.Info("line", "n", i)
			synctest.Wait()
		}
		in := bufio.NewScanner(reader)
		var lines []string
		for range maxQueuedLines + 2 {
			require.True(t, in.Scan())
			lines = append(lines, in.Text())
		}
		assert.Contains(t, lines[0], "msg=line n=0")
		assert.Contains(t, lines[1], `level=WARN msg="lines of this log were dropped, as nobody took them" lines=10`)
		assert.Contains(t, lines[maxQueuedLines+1], "msg=line n=1024")
		logger.Info("last")
		go closeLog()
		require.True(t, in.Scan())
		assert.Contains(t, in.Text(), "msg=last")
		synctest.Wait()
		logger.Info("too late, and no panic")
	})
}

// close writes the queued lines. It gives up if a write blocks.
func TestLogAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger, closeLog := openLog(&out, "json", slog.LevelInfo)
		for range 3 {
			logger.Info("line")
		}
		closeLog()
		assert.Equal(t, 3, strings.Count(out.String(), `"msg":"line"`))

		_, writer := io.Pipe()
		logger, closeLog = openLog(writer, "json", slog.LevelInfo)
		logger.Info("line")
		started := time.Now()
		closeLog()
		assert.Equal(t, outputGrace, time.Since(started))
		_ = writer.Close()
	})
}

// A long line is cut.
func TestLogOfALongLine(t *testing.T) {
	var out bytes.Buffer
	logger, closeLog := openLog(&out, "text", slog.LevelInfo)
	logger.Error("first", "long", strings.Repeat("x", maxLineLength))
	logger.Info("second")
	closeLog()
	lines := strings.SplitAfter(out.String(), "\n")
	require.Len(t, lines, 3)
	assert.Len(t, lines[0], maxLineLength)
	assert.Contains(t, lines[0], "msg=first long=xxx")
	assert.Contains(t, lines[1], "msg=second\n")
}
