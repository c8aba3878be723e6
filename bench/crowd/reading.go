//go:build linux

package crowd

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// reading is what counters say at one time.
type reading struct {
	at                            time.Time
	masterCPU, hitlineCPU, ownCPU time.Duration
	master                        map[string]int64 // metrics of the master
	tapKeys, tapFound             int64
	late, unasked                 int64 // calls of hitline
}

// Metrics of the master.
const (
	evictionsMetric  = "master_attempted_evictions_total"
	successfulMetric = "master_successful_evictions_total"
	evictedMetric    = "master_evicted_key_count"
	keysMetric       = "master_key_count"
)

// read reads all counters.
func (c *cell) read(ctx context.Context) (r reading, err error) {
	if r.master, err = readMetrics(ctx, c.master.Admin, c.o.Timeout); err != nil {
		return r, err
	}
	for _, l := range c.lookups {
		if l.hitline == nil || l != c.lookups[0] && c.way != Each {
			continue
		}
		stat, err := l.hitline.Stat(ctx)
		if err != nil {
			return r, fmt.Errorf("%w: hitline: %w", measure.ErrLost, err)
		}
		r.late += stat.BackendErrors + stat.BackendTimeouts
		r.unasked += stat.BackendRejected
	}
	if c.tap != nil {
		r.tapKeys, r.tapFound = c.tap.keys.Load(), c.tap.found.Load()
	}
	if r.masterCPU, err = c.master.CPU(); err != nil {
		return r, err
	}
	for _, p := range c.hitlines {
		used, err := p.CPU()
		if err != nil {
			return r, err
		}
		r.hitlineCPU += used
	}
	r.ownCPU = process.OwnCPU()
	for _, s := range c.clients {
		used, err := s.child.CPU()
		if err != nil {
			return r, err
		}
		r.ownCPU += used
	}
	r.at = time.Now()
	return r, nil
}

// addSince adds to the figures what has happened since an earlier reading. StoreKeys are the last ones.
func (r reading) addSince(before reading, f *Figures) {
	since := func(metric string) int64 { return r.master[metric] - before.master[metric] }
	f.Seconds += r.at.Sub(before.at).Seconds()
	f.LookupKeys += r.tapKeys - before.tapKeys
	f.LookupLeases += r.tapFound - before.tapFound
	f.Late += r.late - before.late
	f.Unasked += r.unasked - before.unasked
	f.Evictions += since(evictionsMetric)
	f.EmptyEvictions += since(evictionsMetric) - since(successfulMetric)
	f.EvictedKeys += since(evictedMetric)
	f.StoreKeys = r.master[keysMetric]
	f.MasterCPU += (r.masterCPU - before.masterCPU).Seconds()
	f.HitlineCPU += (r.hitlineCPU - before.hitlineCPU).Seconds()
	f.GeneratorCPU += (r.ownCPU - before.ownCPU).Seconds()
}

// readMetrics returns the metrics of a master that are numbers without labels, by name. Those that this package reads must be there.
func readMetrics(ctx context.Context, admin string, timeout time.Duration) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("%w: the master's metrics: %w", measure.ErrLost, err)
	}
	defer response.Body.Close()
	metrics := map[string]int64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			metrics[name] = int64(n)
		}
	}
	for _, name := range []string{evictionsMetric, successfulMetric, evictedMetric, keysMetric} {
		if _, ok := metrics[name]; !ok {
			return nil, fmt.Errorf("%w: the master's metrics lack %s", measure.ErrAnswer, name)
		}
	}
	return metrics, nil
}
