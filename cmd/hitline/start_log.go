package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/lookup"
)

// startTimeout bounds how long serve waits for the store before it is ready anyway.
const startTimeout = time.Second

// logState logs in one line whether the store answers, and reports it to shared if it does not. A store
// that is down may come up; lookups answer 0 until then. A store that is not as configured needs an operator.
func (s *remoteStore) logState(ctx context.Context, shared *lookup.SharedBackend, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	info, err := s.info(ctx)
	if errors.Is(ctx.Err(), context.Canceled) { // the server did not start
		return
	}
	if err != nil {
		shared.ReportFailure(err)
	}
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
