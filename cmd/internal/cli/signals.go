package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// NotifyContext returns a context that ends with parent or with the first signal that ends a
// program in good order: SIGINT, SIGTERM, and SIGHUP unless it is ignored. A second after that
// signals end the program at once. The caller calls stop when it no longer needs the context.
func NotifyContext(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(parent, EndSignals()...)
	context.AfterFunc(ctx, func() { afterGrace(stop) })
	return ctx, stop
}

// EndSignals returns the signals that end a program in good order. SIGHUP, which comes when a
// terminal closes, is one of them unless the program was started to ignore it, as by nohup(1).
func EndSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// afterGrace calls stop a second after the first signal; from then on a signal ends the program at
// once. Before that it is ignored, because timeout(1) sends two in a row, to the process and to
// its group.
func afterGrace(stop func()) {
	time.Sleep(time.Second)
	stop()
}
