package indexbench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/bench"
	"github.com/hitline/hitline/index"
)

// MinChurnEntries is the smallest index for [Churn]: one chain stays and as many
// entries come and go.
const MinChurnEntries = 2 * ChainLen

// ChurnOptions says what to measure.
type ChurnOptions struct {
	Entries int           // hashes in the index, and its bound
	HashLen int           // bytes a hash
	Rate    int           // entries stored a second
	Phase   time.Duration // of one quiet and of one busy phase
	Rounds  int           // the medians of so many are reported

	Progress Progress // may be nil

	open opener // newPool, but for tests
}

// Validate returns an error that wraps [bench.ErrOptions] unless the options make
// sense.
func (o ChurnOptions) Validate() error {
	if err := checkKeys(o.Entries, MinChurnEntries, o.HashLen); err != nil {
		return err
	}
	switch {
	case o.Rate < 1 || o.Rate > 1e8:
		return fmt.Errorf("%w: a rate of %d entries a second; give 1 to 100000000", bench.ErrOptions, o.Rate)
	case o.Phase < time.Millisecond || o.Phase > time.Hour:
		return fmt.Errorf("%w: phases of %v; give 1ms to 1h", bench.ErrOptions, o.Phase)
	}
	return checkPasses(o.Rounds)
}

// ChurnReport is what [Churn] measured: medians over the rounds, in microseconds
// a lookup of ChainLen hashes.
type ChurnReport struct {
	Entries int `json:"entries"`
	HashLen int `json:"hash_len"`
	Rounds  int `json:"rounds"`

	QuietP50us float64 `json:"quiet_p50_us"`
	QuietP99us float64 `json:"quiet_p99_us"`
	ChurnP50us float64 `json:"churn_p50_us"`
	ChurnP99us float64 `json:"churn_p99_us"`
	Ratio      float64 `json:"ratio"` // ChurnP99us / QuietP99us

	QuietP99Spread Spread `json:"quiet_p99_us_spread"`
	ChurnP99Spread Spread `json:"churn_p99_us_spread"`

	StoreRate float64 `json:"store_rate"` // entries stored a second, as achieved
	EvictRate float64 `json:"evict_rate"` // entries that went a second
	Lookups   int     `json:"lookups"`    // timed, in all phases
	Lost      int     `json:"lost"`       // chains that were evicted, rightly, and stored again

	Machine
}

// churn is a measurement under way.
type churn struct {
	ChurnOptions
	ctx    context.Context
	x      subject
	r      reader
	stayed []byte  // the chains that stay, joined
	seen   []int64 // by chain that stays: stored when it was last looked up
	next   int     // the chain that is looked up next
	stored atomic.Int64
	feed   *feed
	report ChurnReport
}

// Churn measures lookups beside stores. Errors wrap [bench.ErrOptions] or
// [ErrWrong], or are the cause of ctx being done.
func Churn(ctx context.Context, o ChurnOptions) (ChurnReport, error) {
	if err := o.Validate(); err != nil {
		return ChurnReport{}, err
	}
	setDefaults(&o.Progress, &o.open)
	c := &churn{ChurnOptions: o, ctx: ctx}
	if err := c.fill(); err != nil {
		return ChurnReport{}, err
	}
	if err := c.measure(); err != nil {
		return ChurnReport{}, err
	}
	r := &c.report
	r.Entries, r.HashLen, r.Rounds, r.Machine = o.Entries, o.HashLen, o.Rounds, thisMachine()
	r.Ratio = over(r.ChurnP99us, r.QuietP99us)
	return *r, nil
}

// fill stores chains that go, then those that stay, so that it is the former that
// go first. About half of the entries stay.
func (c *churn) fill() (err error) {
	if c.x, err = c.open(int64(c.Entries), int64(c.Entries), c.HashLen); err != nil {
		return err
	}
	c.r = c.x.reader(c.HashLen)
	stay := c.Entries / 2 / ChainLen
	c.stayed = allKeys(stay*ChainLen, c.HashLen)
	c.seen = make([]int64, stay)
	c.feed = newFeed(c.x, c.HashLen, stay, (c.Entries-stay*ChainLen)/ChainLen)
	total := chainCount(c.Entries)
	for i := range total - stay {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		if err := c.feed.chain(); err != nil {
			return err
		}
		c.Progress("fill", i+1, total)
	}
	for i := range stay {
		if err := c.x.store(new(index.Writer), part(c.stayed, i, c.HashLen), c.HashLen); err != nil {
			return err
		}
		c.Progress("fill", total-stay+i+1, total)
	}
	c.feed.evicts = true
	return nil
}

// measure makes the rounds.
func (c *churn) measure() error {
	var quietP50, quietP99, churnP50, churnP99, stores, evicts figure
	for round := range c.Rounds {
		c.Progress("measure", 2*round, 2*c.Rounds)
		p50, p99, err := c.phase(c.ctx)
		if err != nil {
			return err
		}
		quietP50, quietP99 = append(quietP50, p50), append(quietP99, p99)
		c.Progress("measure", 2*round+1, 2*c.Rounds)
		evicted, start := c.x.stats().Evicted, time.Now()
		before := c.stored.Load()
		if p50, p99, err = c.busyPhase(); err != nil {
			return err
		}
		took := time.Since(start).Seconds()
		churnP50, churnP99 = append(churnP50, p50), append(churnP99, p99)
		stores = append(stores, float64(c.stored.Load()-before)/took)
		evicts = append(evicts, float64(c.x.stats().Evicted-evicted)/took)
	}
	c.Progress("measure", 2*c.Rounds, 2*c.Rounds)
	if n := c.x.stats().Entries; n > int64(c.Entries) {
		return fmt.Errorf("%w: %d entries under a bound of %d", ErrWrong, n, c.Entries)
	}
	r := &c.report
	r.QuietP50us, r.QuietP99us, r.QuietP99Spread = quietP50.median(), quietP99.median(), quietP99.spread()
	r.ChurnP50us, r.ChurnP99us, r.ChurnP99Spread = churnP50.median(), churnP99.median(), churnP99.spread()
	r.StoreRate, r.EvictRate = stores.median(), evicts.median()
	return nil
}

// busyPhase is a phase with stores beside it.
func (c *churn) busyPhase() (p50, p99 float64, err error) {
	ctx, stop := context.WithCancelCause(c.ctx)
	ended := make(chan error, 1)
	go func() {
		err := c.feed.run(ctx, c.Rate, &c.stored)
		if err != nil {
			stop(err)
		}
		ended <- err
	}()
	p50, p99, err = c.phase(ctx)
	stop(nil)
	if feedErr := <-ended; feedErr != nil {
		err = feedErr
	}
	return p50, p99, err
}

// phase looks up the chains that stay, one after the other, and returns
// percentiles in microseconds. Before its clock runs, the collector does.
func (c *churn) phase(ctx context.Context) (p50, p99 float64, err error) {
	runtime.GC()
	took := make([]time.Duration, 0, 1<<16)
	for end := time.Now().Add(c.Phase); len(took) == 0 || time.Now().Before(end); {
		if ctx.Err() != nil {
			return 0, 0, context.Cause(ctx)
		}
		d, err := c.lookup()
		if err != nil {
			return 0, 0, err
		}
		took = append(took, d)
	}
	c.report.Lookups += len(took)
	slices.Sort(took)
	return percentile(took, 50), percentile(took, 99), nil
}

// lookup times one lookup and judges it.
func (c *churn) lookup() (time.Duration, error) {
	i := c.next
	c.next = (i + 1) % len(c.seen)
	chain := part(c.stayed, i, c.HashLen)
	start := time.Now()
	n := c.r.leading(chain)
	took := time.Since(start)
	stored := c.stored.Load()
	if n != ChainLen {
		// As many entries as do not stay were less recently used when this chain was
		// looked up last; not even half of them had to make way since.
		if stored-c.seen[i] < int64(c.Entries-len(c.seen)*ChainLen)/2 {
			return 0, wrong(fmt.Sprintf("a chain used %d stored entries ago", stored-c.seen[i]), n, ChainLen)
		}
		c.report.Lost++
		if err := c.x.store(new(index.Writer), chain, c.HashLen); err != nil {
			return 0, err
		}
	}
	c.seen[i] = stored
	return took, nil
}

// percentile is the p-th percentile of sorted durations in microseconds.
func percentile(sorted []time.Duration, p int) float64 {
	at := (len(sorted)*p+99)/100 - 1
	return float64(sorted[at].Nanoseconds()) / 1e3
}

// WriteJSON writes the report as one line of JSON.
func (r ChurnReport) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteTable writes the report for people.
func (r ChurnReport) WriteTable(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%d entries of %d bytes, %d rounds, %d lookups of %d hashes, %v\n\n",
		r.Entries, r.HashLen, r.Rounds, r.Lookups, ChainLen, r.Machine)
	const columns = "%-10s %-10s %s\n"
	fmt.Fprintf(&text, columns, "", "p50, us", "p99, us")
	fmt.Fprintf(&text, columns, "quiet", fmt.Sprintf("%.1f", r.QuietP50us), cell(&r.QuietP99us, &r.QuietP99Spread))
	fmt.Fprintf(&text, columns, "churn", fmt.Sprintf("%.1f", r.ChurnP50us), cell(&r.ChurnP99us, &r.ChurnP99Spread))
	fmt.Fprintf(&text, columns, "ratio", "", fmt.Sprintf("%.2fx", r.Ratio))
	fmt.Fprintf(&text, "\n%.0f entries stored and %.0f gone a second; %d chains lost and stored again\n",
		r.StoreRate, r.EvictRate, r.Lost)
	return writeTrimmed(w, text.String())
}
