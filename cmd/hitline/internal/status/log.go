package status

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/tokens"
)

// logEvery is how often what was counted is logged, if there were lookups.
const logEvery = 10 * time.Minute

// Messages of the lines with what was counted.
const (
	messageSummary = "summary of the last minutes"
	messageEnd     = "summary since the start"
)

// counted is what a server has counted in some time.
type counted struct {
	time      time.Duration
	sums      sums
	durations api.Histogram // of lookups
}

func (c counted) minus(before counted) counted {
	return counted{c.time - before.time, c.sums.minus(before.sums), minus(c.durations, before.durations)}
}

// summaryLog logs what a server has counted.
type summaryLog struct {
	logger *slog.Logger
	served func() []any // further attributes of each line
	logged counted      // when the latest line was due
}

// step logs what was counted since the latest line was due, if the next one is and there were lookups. all is since the start.
func (l *summaryLog) step(all counted) {
	if all.time-l.logged.time < logEvery {
		return
	}
	if grown := all.minus(l.logged); grown.sums.lookups > 0 {
		l.write(messageSummary, grown)
	}
	l.logged = all
}

// write logs a line. What is not known is left out.
func (l *summaryLog) write(message string, c counted) {
	attrs := []any{"period", c.time.Round(time.Second).String(), "lookups", c.sums.lookups, "prompts", c.sums.prompts}
	rate := rateOf(c.sums, c.time)
	if rate.HitShare != nil {
		attrs = append(attrs, "hit_share", roundShare(*rate.HitShare))
		if worst, share, ok := tokens.ToMend(rate.Tokens); ok {
			attrs = append(attrs, "largest_loss", worst.String(), "largest_loss_share", roundShare(share))
		}
		late := float64(c.sums.tokens[tokens.NoAnswer]) / float64(api.AskedOfPool(rate.Tokens))
		attrs = append(attrs, "no_answer_share", roundShare(late))
	}
	if latency := latencyOf(c.durations); latency.P50 != nil {
		attrs = append(attrs, "p50", secondsText(*latency.P50), "p99", secondsText(*latency.P99))
	}
	l.logger.Info(message, append(attrs, l.served()...)...)
}

// roundShare rounds a share to a thousandth.
func roundShare(share float64) float64 { return math.Round(share*1000) / 1000 }

func secondsText(s float64) string { return time.Duration(s * float64(time.Second)).String() }

// servedAttrs returns how many pools there are, and how many sources are followed if there is a router.
func (c *Collector) servedAttrs() []any {
	attrs := []any{"pools", len(c.server.Pools())}
	if c.router == nil {
		return attrs
	}
	r := newRouter(nil, c.router.Status())
	return append(attrs, "sources", fmt.Sprintf("%d of %d followed", r.LiveSources, r.TotalSources))
}

// LogEnd logs what was counted since the start. To be called after Server.Shutdown, which counts what was open.
func (c *Collector) LogEnd() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sample()
	c.log.write(messageEnd, c.counted)
}
