package compare

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/internal/figure"
)

// rival is one that is measured. Its server runs.
type rival struct {
	name    string
	version string
	note    string // what limits the meaning of its figures
	allMiss bool   // it finds nothing, whatever is asked

	// open stores the chains with the rival and connects to it. The chains are cut
	// between that and the first question.
	open func(ctx context.Context, w *workload) (asker, error)
}

// asker is a connection to a rival. Not safe for concurrent use.
type asker interface {
	// prepare makes ready what a client would have at hand: after the chains were cut.
	prepare() error
	// ask looks a chain up and returns its hit in tokens and how long that took.
	ask(ctx context.Context, chain int) (hit uint32, took time.Duration, err error)
	close()
}

// lane is a rival at one number of hashes.
type lane struct {
	rival *rival
	asker asker
	load  *workload

	at       int // how far it is in the order
	perRound int // requests
	left     int // of this round

	round     []time.Duration // of this round
	all       []time.Duration // of all rounds that count
	medians   []float64       // of the rounds
	requests  int             // that counted
	wrong     int             // answers, of all requests
	firstFlaw string          // what the first wrong one was
}

// ask asks for the next chain and checks the answer.
func (l *lane) ask(ctx context.Context) (time.Duration, error) {
	chain := l.load.order[l.at%l.load.len()]
	l.at++
	hit, took, err := l.asker.ask(ctx, chain)
	if err != nil {
		return 0, fmt.Errorf("%s, %d hashes: %w", l.rival.name, l.load.hashes, err)
	}
	want := l.load.want[chain]
	if l.rival.allMiss {
		want = 0
	}
	if hit != want {
		l.wrong++
		if l.firstFlaw == "" {
			l.firstFlaw = fmt.Sprintf("%s, %d hashes, request %d: expected %d hit tokens, got %d", l.rival.name, l.load.hashes, l.at, want, hit)
		}
	}
	return took, nil
}

// slice asks so many of the requests that are left of this round.
func (l *lane) slice(ctx context.Context, n int) error {
	for range min(n, l.left) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		took, err := l.ask(ctx)
		if err != nil {
			return err
		}
		l.round = append(l.round, took)
		l.left--
	}
	return nil
}

// endRound takes the figures of the round.
func (l *lane) endRound() {
	l.all = append(l.all, l.round...)
	l.requests += len(l.round)
	slices.Sort(l.round)
	l.medians = append(l.medians, figure.PercentileUs(l.round, 50))
	l.round = l.round[:0]
}

// row makes the report's row, beside the medians of hitline's rounds.
func (l *lane) row(hitline []float64) Row {
	slices.Sort(l.all)
	r := Row{
		Rival: l.rival.name, Version: l.rival.version, Note: l.rival.note, Hashes: l.load.hashes,
		P50us: figure.Median(l.medians), P50usMin: slices.Min(l.medians), P50usMax: slices.Max(l.medians),
		P99us: figure.PercentileUs(l.all, 99), Requests: l.requests, Wrong: l.wrong,
	}
	ratios := make([]float64, len(hitline))
	for i := range ratios {
		ratios[i] = figure.Round3(l.medians[i] / hitline[i])
	}
	r.Ratio = figure.Round3(r.P50us / figure.Median(hitline))
	r.RatioMin, r.RatioMax = slices.Min(ratios), slices.Max(ratios)
	r.UsPerHash = math.Round(1e5*r.P50us/float64(l.load.hashes)) / 1e5
	return r
}
