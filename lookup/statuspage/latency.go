package statuspage

import (
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// latency is the quantiles of the durations of the lookups in a time, in seconds. They are nil if
// there were none.
type latency struct {
	Count uint64   `json:"count"`
	P50   *float64 `json:"p50"`
	P90   *float64 `json:"p90"`
	P99   *float64 `json:"p99"`
	P999  *float64 `json:"p999"`
}

// durationCounts are the counts of the buckets of the lookups' durations at one time.
type durationCounts struct {
	time   time.Time
	counts []uint64
}

// latencySince returns the quantiles of what was observed since an earlier time.
func latencySince(before []uint64, now api.Histogram) latency {
	counts := make([]uint64, len(now.Counts))
	var l latency
	for i, n := range now.Counts {
		if i < len(before) {
			n -= min(n, before[i])
		}
		counts[i] = n
		l.Count += n
	}
	if l.Count == 0 {
		return l
	}
	for _, q := range []struct {
		of   float64
		into **float64
	}{{0.5, &l.P50}, {0.9, &l.P90}, {0.99, &l.P99}, {0.999, &l.P999}} {
		*q.into = new(quantile(q.of, now.Bounds, counts, l.Count))
	}
	return l
}

// quantile returns the quantile of at least one observation, as histogram_quantile of Prometheus
// does: values are spread evenly over a bucket, and beyond all bounds the last bound is returned.
func quantile(q float64, bounds []float64, counts []uint64, total uint64) float64 {
	rank, below := q*float64(total), 0.0
	for i, bound := range bounds {
		n := float64(counts[i])
		if n > 0 && below+n >= rank {
			lower := 0.0
			if i > 0 {
				lower = bounds[i-1]
			}
			return lower + (bound-lower)*(rank-below)/n
		}
		below += n
	}
	return bounds[len(bounds)-1]
}
