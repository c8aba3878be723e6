package statuspage

import "github.com/hitline/hitline/lookup/api"

// latency is the quantiles of the durations of the lookups in the last minutes, in seconds. They are nil if
// there were none.
type latency struct {
	Count uint64   `json:"count"`
	P50   *float64 `json:"p50"`
	P99   *float64 `json:"p99"`
}

// latencySince returns the quantiles of what was observed since the counts of the buckets were before.
func latencySince(before []uint64, now api.Histogram) latency {
	counts := make([]uint64, len(now.Counts))
	var l latency
	for i, n := range now.Counts {
		counts[i] = n - min(n, before[i])
		l.Count += counts[i]
	}
	if l.Count > 0 {
		l.P50 = new(quantile(0.5, now.Bounds, counts, l.Count))
		l.P99 = new(quantile(0.99, now.Bounds, counts, l.Count))
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
