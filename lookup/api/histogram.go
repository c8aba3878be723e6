package api

// Histogram is a histogram of all observations since the start.
type Histogram struct {
	Bounds []float64 // upper bounds of the buckets, ascending
	Counts []uint64  // observations in each bucket alone; one more than Bounds, for those beyond
	Sum    float64   // of all observed values
}
