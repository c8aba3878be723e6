package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
)

// A log without a reader does not block, and has the number of dropped lines later.
func TestLogThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		logger, closeLog := openLog(writer, newLogSettings(config.Log{Level: "info", Format: "text"}))
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
		logger, closeLog := openLog(&out, newLogSettings(config.Log{Level: "info", Format: "json"}))
		for range 3 {
			logger.Info("line")
		}
		closeLog()
		assert.Equal(t, 3, strings.Count(out.String(), `"msg":"line"`))

		_, writer := io.Pipe()
		logger, closeLog = openLog(writer, newLogSettings(config.Log{Level: "info", Format: "json"}))
		logger.Info("line")
		started := time.Now()
		closeLog()
		assert.Equal(t, outputGrace, time.Since(started))
		_ = writer.Close()
	})
}

// blockedLog returns a logger whose queue is full, and the reader of the log.
func blockedLog(t testing.TB, format config.Format) (logger *slog.Logger, reader *io.PipeReader) {
	reader, writer := io.Pipe()
	logger, closeLog := openLog(writer, newLogSettings(config.Log{Level: "debug", Format: format}))
	t.Cleanup(func() { reader.Close(); closeLog() })
	logger.Debug("line")
	_, err := reader.Read(make([]byte, 1)) // its other bytes wait for a reader
	require.NoError(t, err)
	for range 2 * maxQueuedLines {
		logger.Debug("line")
	}
	return logger, reader
}

// countingValue counts how often it is formatted.
type countingValue struct{ formatted *int }

func (v countingValue) LogValue() slog.Value { *v.formatted++; return slog.StringValue("value") }

// A line that is dropped is counted and not formatted.
func TestDroppedLinesAreNotFormatted(t *testing.T) {
	logger, reader := blockedLog(t, "text")
	var formatted int
	value := countingValue{&formatted}
	const lines = 10
	for range lines {
		logger.Debug("dropped", "value", value)
		logger.With("a", 1).Debug("dropped", "value", value)
		logger.WithGroup("g").Debug("dropped", "value", value)
	}
	assert.Zero(t, formatted)
	assert.Zero(t, testing.AllocsPerRun(100, func() { logger.Debug("dropped") }))

	// The queue may become full after Enabled.
	late := slog.NewRecord(time.Now(), slog.LevelDebug, strings.Repeat("x", maxLineLength/2), 0)
	for range maxQueuedBytes / (maxLineLength / 2) {
		require.NoError(t, logger.Handler().Handle(t.Context(), late))
	}

	in := bufio.NewScanner(reader)
	for range 2 {
		require.True(t, in.Scan())
	}
	n := 0
	_, after, _ := strings.Cut(in.Text(), "were dropped, as nobody took them\" lines=")
	assert.NoError(t, json.Unmarshal([]byte(after), &n), in.Text())
	assert.Equal(t, maxQueuedLines+3*lines+101+maxQueuedBytes/(maxLineLength/2), n)
	require.True(t, in.Scan())
	logger.Debug("kept", "value", value)
	assert.Equal(t, 1, formatted, "there is a free place")
}

// The queue is bounded in bytes, and each line is written or counted.
func TestLogOfBigLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		logger, closeLog := openLog(writer, newLogSettings(config.Log{Level: "info", Format: "json"}))
		const workers, each = 8, 200
		big := strings.Repeat("x", maxLineLength*3/4)
		logger.Info("line", "x", big)
		synctest.Wait() // it is on its way to the pipe, so none leaves the queue from here on
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for range each {
					logger.Info("line", "x", big)
				}
			})
		}
		all.Wait()
		synctest.Wait()
		var formatted int
		logger.Info("line", "x", countingValue{&formatted})
		assert.Zero(t, formatted)
		var written, size, dropped int
		in := bufio.NewScanner(reader)
		read := func() (msg string) {
			require.True(t, in.Scan())
			var line struct {
				Msg   string
				Lines int
			}
			require.NoError(t, json.Unmarshal(in.Bytes(), &line))
			if line.Msg == "line" {
				written++
				size += len(in.Bytes()) + 1
			}
			dropped += line.Lines
			return line.Msg
		}
		for written+dropped < workers*each+2 {
			read()
		}
		assert.Equal(t, workers*each+2, written+dropped)
		assert.LessOrEqual(t, size, maxQueuedBytes+maxLineLength, "one more is on its way to the pipe")
		assert.Greater(t, size, maxQueuedBytes/2)
		logger.Info("last")
		go closeLog()
		assert.Equal(t, "last", read(), "the queue is empty, and takes lines again")
	})
}

// Of a line that is too long the log has the beginning.
func TestLogOfLinesThatAreTooLong(t *testing.T) {
	for _, format := range []config.Format{"json", "text"} {
		for _, long := range []string{"x", "\x00", "\"", "é", "\xff", "\u2028"} {
			var out bytes.Buffer
			logger, closeLog := openLog(&out, newLogSettings(config.Log{Level: "info", Format: format}))
			logger.Info("first")
			logger.Error("second", "long", strings.Repeat(long, maxLineLength))
			logger.Info("third")
			closeLog()
			lines := strings.SplitAfter(out.String(), "\n")
			require.Len(t, lines, 4)
			assert.True(t, strings.Contains(lines[0], "first"))
			assert.True(t, strings.Contains(lines[1], "a line of this log was too long") && strings.Contains(lines[1], "second"))
			assert.LessOrEqual(t, len(lines[1]), maxLineLength)
			assert.Equal(t, format == "json", json.Valid([]byte(lines[1])))
			assert.True(t, strings.Contains(lines[2], "third"))
		}
	}
}

// BenchmarkRefusedRequest logs as the server does for a request that it refuses, at level
// debug: with a reader that takes each line, and with none.
func BenchmarkRefusedRequest(b *testing.B) {
	peer := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000}
	err := errors.New("netproto: a request of an unknown kind")
	run := func(b *testing.B, logger *slog.Logger) {
		ctx := context.Background()
		b.ReportAllocs()
		for b.Loop() {
			if !logger.Enabled(ctx, slog.LevelDebug) {
				continue
			}
			attrs := append(make([]slog.Attr, 0, 4), slog.String("peer", peer.String()), slog.String("error", err.Error()))
			logger.LogAttrs(ctx, slog.LevelDebug, "request refused", attrs...)
		}
	}
	for _, format := range []config.Format{"text", "json"} {
		b.Run("format="+string(format)+"/reader=none", func(b *testing.B) {
			logger, _ := blockedLog(b, format)
			run(b, logger)
		})
		b.Run("format="+string(format)+"/reader=fast", func(b *testing.B) {
			logger, closeLog := openLog(io.Discard, newLogSettings(config.Log{Level: "debug", Format: format}))
			defer closeLog()
			run(b, logger)
		})
	}
}
