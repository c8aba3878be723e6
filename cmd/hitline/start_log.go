package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/backend"
)

// startTimeout bounds how long serve waits for the store before it serves anyway.
const startTimeout = time.Second

// logState logs in one line whether the store answers. A store that is down may come up;
// lookups answer 0 until then. A store that is not as configured needs an operator.
func (s *remoteStore) logState(ctx context.Context, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	info, err := s.info(ctx)
	defer s.startLog(err)
	switch {
	case err == nil:
		logger.Info("the store answers", "backend", s.Name(), "server", info.Server, "mode", info.Mode)
	case errors.Is(err, backend.ErrMismatch):
		logger.Error("the store is not what the configuration says; serving anyway, every lookup is a hit of 0",
			"backend", s.Name(), "error", err.Error(), "help", "hitline doctor")
	default:
		logger.Warn("the store cannot be used; serving anyway, every lookup is a hit of 0 until it can",
			"backend", s.Name(), "error", err.Error(), "help", "hitline doctor")
	}
}

// startHandler drops what a backend logs before start. After it, it drops the error that
// logState has logged, until the backend logs a recovery.
type startHandler struct {
	slog.Handler
	reported atomic.Pointer[string] // nil before start, "" if nothing is to be dropped
}

// start lets the backend log. reported is the error that logState has logged, or nil.
func (h *startHandler) start(reported error) {
	text := ""
	if reported != nil {
		text = reported.Error()
	}
	h.reported.Store(&text)
}

// Enabled is false before start.
func (h *startHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.reported.Load() != nil && h.Handler.Enabled(ctx, level)
}

// Handle drops a warning with the reported error. A record below a warning is a recovery:
// after it nothing is dropped.
func (h *startHandler) Handle(ctx context.Context, r slog.Record) error {
	reported, repeated := h.reported.Load(), false
	if r.Level < slog.LevelWarn {
		h.reported.Store(new(string))
	} else if *reported != "" {
		r.Attrs(func(a slog.Attr) bool {
			repeated = a.Key == "error" && strings.Contains(*reported, a.Value.String())
			return !repeated
		})
	}
	if repeated {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
