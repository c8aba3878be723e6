package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The error that serve has logged at the start is not logged again.
func TestLateLog(t *testing.T) {
	var out bytes.Buffer
	handler := &startHandler{Handler: slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})}
	log := slog.New(handler)
	lines := func() int { return strings.Count(out.String(), "\n") }
	down, wrong := errors.New("a:1: refused"), errors.New("a:1: wrong")

	log.Warn("no master", "error", down)
	assert.Zero(t, lines(), "before the beginning")
	handler.start(errors.New("mooncake: a:1: refused"))
	log.Warn("no master", "error", down)
	assert.Zero(t, lines(), "known")
	log.Error("no master", "error", wrong)
	assert.Equal(t, 1, lines(), "another reason")
	log.Info("found")
	log.Warn("no master", "error", down)
	assert.Equal(t, 3, lines(), "it was well meanwhile")
	log.Debug("details")
	assert.Equal(t, 3, lines())

	handler.start(nil)
	log.Warn("no master", "error", down)
	assert.Equal(t, 4, lines())
}
