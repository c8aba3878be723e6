package main

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
)

// logSettings are the level and the format of a log. They may be set while it is written to; no
// record waits for that.
type logSettings struct {
	level slog.LevelVar
	json  atomic.Bool
}

func newLogSettings(cfg config.Log) *logSettings {
	s := &logSettings{}
	s.set(cfg)
	return s
}

// set sets both, for the records from now on.
func (s *logSettings) set(cfg config.Log) {
	levels := map[config.Level]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
	s.level.Set(levels[cfg.Level])
	s.json.Store(cfg.Format == "json")
}

// newLogger returns a logger that writes to w as settings say at each record.
func newLogger(w io.Writer, settings *logSettings) *slog.Logger {
	options := &slog.HandlerOptions{Level: &settings.level}
	return slog.New(&formatHandler{slog.NewTextHandler(w, options), slog.NewJSONHandler(w, options), settings})
}

// formatHandler has a handler of each format. The one that the settings name handles a record.
type formatHandler struct {
	text, json slog.Handler
	settings   *logSettings
}

func (h *formatHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.settings.level.Level()
}

func (h *formatHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.settings.json.Load() {
		return h.json.Handle(ctx, r)
	}
	return h.text.Handle(ctx, r)
}

func (h *formatHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &formatHandler{h.text.WithAttrs(attrs), h.json.WithAttrs(attrs), h.settings}
}

func (h *formatHandler) WithGroup(name string) slog.Handler {
	return &formatHandler{h.text.WithGroup(name), h.json.WithGroup(name), h.settings}
}
