package indexbench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/hitline/hitline/bench/measure"
)

// SpeedReport is what [Speed] measured: medians of the passes, nanoseconds a hash but for
// a miss, which is nanoseconds a request. What is about the map is nil if there is none
// for the length of the hashes.
type SpeedReport struct {
	Setup   measure.Setup `json:"setup"`
	Entries int           `json:"entries"`
	HashLen int           `json:"hash_len"`
	Passes  int           `json:"passes"`

	ChainNs       float64  `json:"chain_ns"`
	RandomNs      float64  `json:"random_ns"`
	MissNs        float64  `json:"miss_ns"`
	GomapChainNs  *float64 `json:"gomap_chain_ns"`
	GomapRandomNs *float64 `json:"gomap_random_ns"`

	ChainSpread       Spread  `json:"chain_ns_spread"`
	RandomSpread      Spread  `json:"random_ns_spread"`
	MissSpread        Spread  `json:"miss_ns_spread"`
	GomapChainSpread  *Spread `json:"gomap_chain_ns_spread"`
	GomapRandomSpread *Spread `json:"gomap_random_ns_spread"`

	ChainRatio        *float64 `json:"chain_ratio"`  // the map's time over the index's
	RandomRatio       *float64 `json:"random_ratio"` // the same
	MissInMapAccesses *float64 `json:"miss_in_map_accesses"`

	BytesPerEntry       float64  `json:"bytes_per_entry"`
	PeakBytesPerEntry   float64  `json:"peak_bytes_per_entry"`
	MappedBytesPerEntry float64  `json:"mapped_bytes_per_entry"` // of BytesPerEntry, outside the Go heap
	StatsBytesPerEntry  float64  `json:"stats_bytes_per_entry"`  // as the index itself says
	GomapBytesPerEntry  *float64 `json:"gomap_bytes_per_entry"`

	// Of hashes stored one by one, each a chain of its own: at most 1,048,576.
	SingleStoresPerS         float64 `json:"single_stores_per_s"`
	SingleStoresSpread       Spread  `json:"single_stores_per_s_spread"`
	SingleStatsBytesPerEntry float64 `json:"single_stats_bytes_per_entry"` // as the index itself says
}

// report takes the medians.
func (s *speed) report() SpeedReport {
	r := SpeedReport{
		Setup: s.setup, Entries: s.Entries, HashLen: s.HashLen, Passes: s.Passes,
		ChainNs: s.chain.median(), ChainSpread: s.chain.spread(),
		RandomNs: s.random.median(), RandomSpread: s.random.spread(),
		MissNs: s.miss.median(), MissSpread: s.miss.spread(),
		BytesPerEntry: measure.Round3(s.bytes), PeakBytesPerEntry: measure.Round3(s.peak),
		MappedBytesPerEntry: measure.Round3(s.mapped), StatsBytesPerEntry: measure.Round3(s.bytesAsStated),
	}
	r.SingleStoresPerS, r.SingleStoresSpread = s.single.median(), s.single.spread()
	r.SingleStatsBytesPerEntry = measure.Round3(s.singleBytes)
	if s.rival == nil {
		return r
	}
	r.GomapChainNs, r.GomapChainSpread = new(s.rivalChain.median()), new(s.rivalChain.spread())
	r.GomapRandomNs, r.GomapRandomSpread = new(s.rivalRandom.median()), new(s.rivalRandom.spread())
	r.ChainRatio = new(over(*r.GomapChainNs, r.ChainNs))
	r.RandomRatio = new(over(*r.GomapRandomNs, r.RandomNs))
	r.MissInMapAccesses = new(over(r.MissNs, *r.GomapRandomNs))
	r.GomapBytesPerEntry = new(measure.Round3(s.rivalBytes))
	return r
}

// WriteJSON writes the report as one line of JSON.
func (r SpeedReport) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteTable writes the report for people: medians with the least and the largest
// value.
func (r SpeedReport) WriteTable(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%d entries of %d bytes, %d passes\n%v\n\n", r.Entries, r.HashLen, r.Passes, r.Setup)
	const columns = "%-22s %-28s %-28s %s\n"
	fmt.Fprintf(&text, columns, "", "hitline", "Go map", "")
	fmt.Fprintf(&text, columns, "chain, ns a hash", cell(&r.ChainNs, &r.ChainSpread),
		cell(r.GomapChainNs, r.GomapChainSpread), suffixed(r.ChainRatio, "x"))
	fmt.Fprintf(&text, columns, "random, ns a hash", cell(&r.RandomNs, &r.RandomSpread),
		cell(r.GomapRandomNs, r.GomapRandomSpread), suffixed(r.RandomRatio, "x"))
	fmt.Fprintf(&text, columns, "miss, ns a request", cell(&r.MissNs, &r.MissSpread),
		"", suffixed(r.MissInMapAccesses, " random map accesses"))
	fmt.Fprintf(&text, columns, "bytes an entry", cell(&r.BytesPerEntry, nil), cell(r.GomapBytesPerEntry, nil), "")
	fmt.Fprintf(&text, columns, "  peak while filled", cell(&r.PeakBytesPerEntry, nil), "", "")
	fmt.Fprintf(&text, columns, "  mapped beside heap", cell(&r.MappedBytesPerEntry, nil), "", "")
	fmt.Fprintf(&text, columns, "  as the index says", cell(&r.StatsBytesPerEntry, nil), "", "")
	fmt.Fprintf(&text, columns, "one-block stores a s", fmt.Sprintf("%.0f (%.0f–%.0f)", r.SingleStoresPerS, r.SingleStoresSpread[0], r.SingleStoresSpread[1]), "", "")
	fmt.Fprintf(&text, columns, "  bytes an entry then", cell(&r.SingleStatsBytesPerEntry, nil), "", "")
	return writeTrimmed(w, text.String())
}
