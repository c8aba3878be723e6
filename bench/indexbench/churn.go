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

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/index"
)

// MinChurnEntries is the smallest index for [Churn]: one chain stays and as many
// entries come and go.
const MinChurnEntries = 2 * ChainLen

// maxLookupsDue bounds how many lookups fall due in one phase: each takes 8 bytes.
const maxLookupsDue = 10_000_000

// ChurnOptions says what to measure.
type ChurnOptions struct {
	Entries    int           // hashes in the index, and its bound
	HashLen    int           // bytes a hash
	Rate       int           // entries stored a second
	LookupRate int           // lookups that fall due a second
	Phase      time.Duration // of one quiet and of one busy phase
	Rounds     int           // how often each of the two is measured
	Seed       uint64        // decides the hashes; not 0

	Progress Progress // may be nil

	open opener              // newPool, but for tests
	nap  func(time.Duration) // measure.Nap, but for tests
}

// Validate returns an error that wraps [measure.ErrOptions] unless the options make
// sense.
func (o ChurnOptions) Validate() error {
	if err := checkKeys(o.Entries, MinChurnEntries, o.HashLen, o.Seed); err != nil {
		return err
	}
	switch {
	case o.Rate < 1 || o.Rate > 1e8:
		return fmt.Errorf("%w: a rate of %d entries a second; give 1 to 100000000", measure.ErrOptions, o.Rate)
	case o.LookupRate < 1 || o.LookupRate > 1e6:
		return fmt.Errorf("%w: a rate of %d lookups a second; give 1 to 1000000", measure.ErrOptions, o.LookupRate)
	case o.Phase < time.Millisecond || o.Phase > time.Hour:
		return fmt.Errorf("%w: phases of %v; give 1ms to 1h", measure.ErrOptions, o.Phase)
	case o.Phase.Seconds()*float64(o.LookupRate) > maxLookupsDue:
		return fmt.Errorf("%w: %d lookups a second for %v; at most %d fit a phase", measure.ErrOptions, o.LookupRate, o.Phase, maxLookupsDue)
	}
	return checkPasses(o.Rounds)
}

// ChurnReport is what [Churn] measured.
type ChurnReport struct {
	Setup      measure.Setup `json:"setup"`
	Entries    int           `json:"entries"`
	HashLen    int           `json:"hash_len"`
	Rounds     int           `json:"rounds"`
	LookupRate int           `json:"lookup_rate"` // lookups of ChainLen hashes that fell due a second

	Quiet Waits `json:"quiet"` // without stores
	Churn Waits `json:"churn"` // beside them
	// Of Churn to Quiet. 0 if that of Quiet is 0 or a lower bound.
	P99Ratio float64 `json:"p99_ratio"`
	MaxRatio float64 `json:"max_ratio"`
	// The p99 of a round's busy phase to that of its quiet one: the median of the rounds, the
	// least and the largest. A stall of the machine in few rounds does not change the median.
	P99PairRatio       float64 `json:"p99_pair_ratio"`
	P99PairRatioSpread Spread  `json:"p99_pair_ratio_spread"`

	StoreRate float64 `json:"store_rate"` // entries stored a second, as achieved; median of the rounds
	EvictRate float64 `json:"evict_rate"` // entries that went a second; median of the rounds
	Lost      int     `json:"lost"`       // chains that were evicted, rightly, and stored again
}

// churn is a measurement under way.
type churn struct {
	ChurnOptions
	ctx    context.Context
	x      subject
	r      reader
	stayed []byte  // the chains that stay, joined
	seen   []int64 // by chain that stays: stored when it was last looked up
	lost   []int   // chains to be stored again at the end of the phase
	next   int     // the chain that is looked up next
	stored atomic.Int64
	feed   *feed

	quiet, busy    waits
	stores, evicts passes
	report         ChurnReport
}

// Churn measures lookups beside stores. Errors wrap [measure.ErrOptions] or
// [ErrWrong], or are the cause of ctx being done.
func Churn(ctx context.Context, o ChurnOptions) (ChurnReport, error) {
	if err := o.Validate(); err != nil {
		return ChurnReport{}, err
	}
	setDefaults(&o.Progress, &o.open)
	if o.nap == nil {
		o.nap = measure.Nap
	}
	c := &churn{ChurnOptions: o, ctx: ctx}
	c.report = ChurnReport{
		Setup: measure.NewSetup(o.Seed), Entries: o.Entries, HashLen: o.HashLen, Rounds: o.Rounds, LookupRate: o.LookupRate,
	}
	if err := c.fill(); err != nil {
		return ChurnReport{}, err
	}
	if err := c.measure(); err != nil {
		return ChurnReport{}, err
	}
	r := &c.report
	r.Quiet, r.Churn = c.quiet.summarize(), c.busy.summarize()
	r.StoreRate, r.EvictRate = c.stores.median(), c.evicts.median()
	var pairs passes
	for i, quiet := range c.quiet.p99 {
		pairs = append(pairs, over(c.busy.p99[i], quiet))
	}
	r.P99PairRatio, r.P99PairRatioSpread = pairs.median(), pairs.spread()
	if !r.Quiet.P99AtLeast {
		r.P99Ratio = over(r.Churn.P99us, r.Quiet.P99us)
	}
	if !r.Quiet.MaxAtLeast {
		r.MaxRatio = over(r.Churn.MaxUs, r.Quiet.MaxUs)
	}
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
	c.stayed = seed(c.Seed).allKeys(stay*ChainLen, c.HashLen)
	c.seen = make([]int64, stay)
	c.feed = newFeed(c.x, seed(c.Seed), c.HashLen, stay, (c.Entries-stay*ChainLen)/ChainLen)
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
		if err := c.store(i); err != nil {
			return err
		}
		c.Progress("fill", total-stay+i+1, total)
	}
	c.feed.evicts = true
	return nil
}

// store stores a chain that stays.
func (c *churn) store(i int) error {
	return c.x.store(new(index.Writer), part(c.stayed, i, c.HashLen), c.HashLen)
}

// measure makes the rounds.
func (c *churn) measure() error {
	for round := range c.Rounds {
		c.Progress("measure", 2*round, 2*c.Rounds)
		if err := c.phase(c.ctx, &c.quiet); err != nil {
			return err
		}
		c.Progress("measure", 2*round+1, 2*c.Rounds)
		evicted, stored, start := c.x.stats().Evicted, c.stored.Load(), time.Now()
		if err := c.busyPhase(); err != nil {
			return err
		}
		took := time.Since(start).Seconds()
		c.stores = append(c.stores, float64(c.stored.Load()-stored)/took)
		c.evicts = append(c.evicts, float64(c.x.stats().Evicted-evicted)/took)
	}
	c.Progress("measure", 2*c.Rounds, 2*c.Rounds)
	if n := c.x.stats().Entries; n > int64(c.Entries) {
		return fmt.Errorf("%w: %d entries under a bound of %d", ErrWrong, n, c.Entries)
	}
	return nil
}

// busyPhase is a phase with stores beside it.
func (c *churn) busyPhase() error {
	ctx, stop := context.WithCancelCause(c.ctx)
	ended := make(chan error, 1)
	go func() {
		err := c.feed.run(ctx, c.Rate, &c.stored)
		if err != nil {
			stop(err)
		}
		ended <- err
	}()
	err := c.phase(ctx, &c.busy)
	stop(nil)
	if feedErr := <-ended; feedErr != nil {
		err = feedErr
	}
	return err
}

// phase looks up the chains that stay, each when it is due, and adds the waits to into.
// The collector runs before the clock does. Chains that were lost are stored again when
// the clock has stopped, since the lookups behind would wait for that.
func (c *churn) phase(ctx context.Context, into *waits) error {
	runtime.GC()
	start := time.Now()
	end := start.Add(c.Phase)
	due := func(i int) time.Time {
		return start.Add(time.Duration(float64(i) / float64(c.LookupRate) * float64(time.Second)))
	}
	var round roundWaits
	i := 0
	for now := start; now.Before(end) && due(i).Before(end); i++ {
		if err := measure.Until(ctx, due(i), c.nap); err != nil {
			return err
		}
		if err := c.lookup(); err != nil {
			return err
		}
		now = time.Now()
		round.done = append(round.done, now.Sub(due(i)))
	}
	for now := time.Now(); due(i).Before(end); i++ {
		round.unbegun = append(round.unbegun, now.Sub(due(i)))
	}
	into.add(round)
	for _, lost := range c.lost {
		if err := c.store(lost); err != nil {
			return err
		}
		c.seen[lost] = c.stored.Load()
	}
	c.lost = c.lost[:0]
	return nil
}

// lookup makes one lookup and judges it.
func (c *churn) lookup() error {
	i := c.next
	c.next = (i + 1) % len(c.seen)
	n := c.r.leading(part(c.stayed, i, c.HashLen))
	stored := c.stored.Load()
	if n == ChainLen {
		c.seen[i] = stored
		return nil
	}
	// As many entries as do not stay were less recently used when this chain was
	// looked up last; not even half of them had to make way since.
	if stored-c.seen[i] < int64(c.Entries-len(c.seen)*ChainLen)/2 {
		return wrong(fmt.Sprintf("a chain used %d stored entries ago", stored-c.seen[i]), n, ChainLen)
	}
	if !slices.Contains(c.lost, i) {
		c.lost = append(c.lost, i)
		c.report.Lost++
	}
	return nil
}

// WriteJSON writes the report as one line of JSON.
func (r ChurnReport) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteTable writes the report for people.
func (r ChurnReport) WriteTable(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%d entries of %d bytes, %d rounds, %d lookups of %d hashes due a second\n%v\n\n",
		r.Entries, r.HashLen, r.Rounds, r.LookupRate, ChainLen, r.Setup)
	const columns = "%-8s %-26s %-26s %-26s %-9s %s\n"
	fmt.Fprintf(&text, columns, "", "p50, us", "p99, us", "max, us", "lookups", "not begun")
	for _, row := range []struct {
		name string
		Waits
	}{{"quiet", r.Quiet}, {"churn", r.Churn}} {
		fmt.Fprintf(&text, columns, row.name,
			atLeastMark(row.P50AtLeast)+cell(&row.P50us, &row.P50Spread), atLeastMark(row.P99AtLeast)+cell(&row.P99us, &row.P99Spread),
			atLeastMark(row.MaxAtLeast)+cell(&row.MaxUs, &row.MaxSpread), fmt.Sprint(row.Lookups), fmt.Sprint(row.Unbegun))
	}
	ratio := func(v float64, atLeast bool) string {
		if v == 0 {
			return "unknown"
		}
		return atLeastMark(atLeast) + suffixed(&v, "x")
	}
	fmt.Fprintf(&text, columns, "ratio", "", ratio(r.P99Ratio, r.Churn.P99AtLeast), ratio(r.MaxRatio, r.Churn.MaxAtLeast), "", "")
	fmt.Fprintf(&text, columns, "of pairs", "", atLeastMark(r.Churn.P99AtLeast)+cell(&r.P99PairRatio, &r.P99PairRatioSpread), "", "", "")
	fmt.Fprintf(&text, "\n%.0f entries stored and %.0f gone a second; %d chains lost and stored again\n",
		r.StoreRate, r.EvictRate, r.Lost)
	return writeTrimmed(w, text.String())
}
