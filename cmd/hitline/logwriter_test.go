package main

import (
	"bufio"
	"bytes"
	"io"
	"strings"
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
		logger, closeLog := openLog(writer, config.Log{Level: "info", Format: "text"})
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
		logger, closeLog := openLog(&out, config.Log{Level: "info", Format: "json"})
		for range 3 {
			logger.Info("line")
		}
		closeLog()
		assert.Equal(t, 3, strings.Count(out.String(), `"msg":"line"`))

		_, writer := io.Pipe()
		logger, closeLog = openLog(writer, config.Log{Level: "info", Format: "json"})
		logger.Info("line")
		started := time.Now()
		closeLog()
		assert.Equal(t, outputGrace, time.Since(started))
		_ = writer.Close()
	})
}
