package floor

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

// Report is the result of Run. Latencies are of the round trips of all rounds, and to
// 0.01 us. Ratios, rates and CPU times are medians of the rounds; the fields that end
// in Min and Max are the least and the largest of a round.
type Report struct {
	Setup measure.Setup `json:"setup"`

	Dialect string `json:"dialect"`
	Connect string `json:"connect,omitempty"` // the server that Run did not start

	Hashes   int `json:"hashes"`
	Entries  int `json:"entries"` // hashes that Run stored
	Chains   int `json:"chains"`
	Rounds   int `json:"rounds"`
	Requests int `json:"requests"` // a round and server
	Wrong    int `json:"wrong"`    // answers, of all requests

	FloorP50us   float64 `json:"floor_p50_us"`
	HitlineP50us float64 `json:"hitline_p50_us"`
	Ratio        float64 `json:"ratio"` // hitline's median to the floor server's, in a round
	RatioMin     float64 `json:"ratio_min"`
	RatioMax     float64 `json:"ratio_max"`
	FloorP99us   float64 `json:"floor_p99_us"`
	HitlineP99us float64 `json:"hitline_p99_us"`
	FloorMaxus   float64 `json:"floor_max_us"`
	HitlineMaxus float64 `json:"hitline_max_us"`

	Anchored *AnchoredReport `json:"anchored,omitempty"`

	FloorCPUus   float64  `json:"floor_cpu_us"` // CPU time a request
	HitlineCPUus *float64 `json:"hitline_cpu_us,omitempty"`

	Pipeline    int     `json:"pipeline,omitempty"`
	FloorRPS    float64 `json:"floor_rps,omitempty"` // requests a second
	HitlineRPS  float64 `json:"hitline_rps,omitempty"`
	RPSRatio    float64 `json:"rps_ratio,omitempty"`
	RPSRatioMin float64 `json:"rps_ratio_min,omitempty"`
	RPSRatioMax float64 `json:"rps_ratio_max,omitempty"`

	IdleCPU *float64 `json:"idle_cpu_ms_per_s,omitempty"` // of hitline after the rounds; none with Connect

	Cores      []int `json:"cores"`             // of the client and of the servers; empty if not pinned
	LLC        int64 `json:"llc_bytes"`         // last-level cache as the machine reports it, 0 unknown
	WorkingSet int64 `json:"working_set_bytes"` // of all chains, in requests and index
}

// AnchoredReport tells lookups by anchors apart: of prompts that are stored whole,
// and of such as leave what is stored at a random block. Ratios are to the floor
// server, which reads all hashes of either.
type AnchoredReport struct {
	HitP50us    float64 `json:"hit_p50_us"`
	HitRatio    float64 `json:"hit_ratio"`
	HitRatioMin float64 `json:"hit_ratio_min"`
	HitRatioMax float64 `json:"hit_ratio_max"`
	HitP99us    float64 `json:"hit_p99_us"`
	HitRatio99  float64 `json:"hit_p99_ratio"`

	MissP50us    float64 `json:"miss_p50_us"`
	MissRatio    float64 `json:"miss_ratio"`
	MissRatioMin float64 `json:"miss_ratio_min"`
	MissRatioMax float64 `json:"miss_ratio_max"`
	MissP99us    float64 `json:"miss_p99_us"`
	MissRatio99  float64 `json:"miss_p99_ratio"`
}

// times are the round trips of one server.
type times struct {
	all      []time.Duration // of all rounds, in any order
	p50, p99 []float64       // of each round, in microseconds
}

// add adds a round, which it sorts.
func (t *times) add(round []time.Duration) {
	slices.Sort(round)
	t.all = append(t.all, round...)
	t.p50 = append(t.p50, measure.PercentileUs(round, 50))
	t.p99 = append(t.p99, measure.PercentileUs(round, 99))
}

// percentiles returns those of all rounds, and the longest round trip.
func (t *times) percentiles() (p50, p99, longest float64) {
	slices.Sort(t.all)
	return measure.PercentileUs(t.all, 50), measure.PercentileUs(t.all, 99), measure.PercentileUs(t.all, 100)
}

// ratio returns the median of the rounds' ratios of hitline's figures to the floor
// server's, and the least and the largest.
func ratio(floor, hitline []float64) (median, least, most float64) {
	ratios := make([]float64, len(floor))
	for i := range ratios {
		ratios[i] = measure.Round3(hitline[i] / floor[i])
	}
	return measure.Range(ratios)
}

// setTimes fills in what the round trips of both servers say.
func (r *Report) setTimes(floor, hitline *times) {
	r.FloorP50us, r.FloorP99us, r.FloorMaxus = floor.percentiles()
	r.HitlineP50us, r.HitlineP99us, r.HitlineMaxus = hitline.percentiles()
	r.Ratio, r.RatioMin, r.RatioMax = ratio(floor.p50, hitline.p50)
}

// newAnchoredReport returns what the round trips say of hits and misses.
func newAnchoredReport(floor, hits, misses *times) *AnchoredReport {
	var a AnchoredReport
	a.HitP50us, a.HitP99us, _ = hits.percentiles()
	a.HitRatio, a.HitRatioMin, a.HitRatioMax = ratio(floor.p50, hits.p50)
	a.HitRatio99, _, _ = ratio(floor.p99, hits.p99)
	a.MissP50us, a.MissP99us, _ = misses.percentiles()
	a.MissRatio, a.MissRatioMin, a.MissRatioMax = ratio(floor.p50, misses.p50)
	a.MissRatio99, _, _ = ratio(floor.p99, misses.p99)
	return &a
}

// WriteJSON writes the report as one line of JSON.
func (r Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteTable writes the report as lines of name and value, for people.
func (r Report) WriteTable(w io.Writer) error {
	var text strings.Builder
	row := func(name, format string, values ...any) {
		fmt.Fprintf(&text, "%-12s %s\n", name, fmt.Sprintf(format, values...))
	}
	row("setup", "%v", r.Setup)
	row("request", "%d hashes, %s dialect", r.Hashes, r.Dialect)
	row("index", "%d entries in %d chains", r.Entries, r.Chains)
	row("working set", "%d MiB; last-level cache %d MiB", r.WorkingSet>>20, r.LLC>>20)
	if len(r.Cores) == 2 {
		row("cores", "client %d, servers %d", r.Cores[0], r.Cores[1])
	} else {
		row("cores", "not pinned")
	}
	row("rounds", "%d of %d requests a server; ratios are medians, with least and largest", r.Rounds, r.Requests)
	row("floor", "p50 %.2f us, p99 %.2f us, max %.2f us, %.2f us of CPU", r.FloorP50us, r.FloorP99us, r.FloorMaxus, r.FloorCPUus)
	cpu := ""
	if r.HitlineCPUus != nil {
		cpu = fmt.Sprintf(", %.2f us of CPU", *r.HitlineCPUus)
	}
	row("hitline", "p50 %.2f us, p99 %.2f us, max %.2f us%s", r.HitlineP50us, r.HitlineP99us, r.HitlineMaxus, cpu)
	row("ratio", "%.3f (%.3f to %.3f)", r.Ratio, r.RatioMin, r.RatioMax)
	if a := r.Anchored; a != nil {
		row("hits", "p50 %.2f us, ratio %.3f (%.3f to %.3f); p99 %.2f us, ratio %.3f", a.HitP50us, a.HitRatio, a.HitRatioMin, a.HitRatioMax, a.HitP99us, a.HitRatio99)
		row("misses", "p50 %.2f us, ratio %.3f (%.3f to %.3f); p99 %.2f us, ratio %.3f", a.MissP50us, a.MissRatio, a.MissRatioMin, a.MissRatioMax, a.MissP99us, a.MissRatio99)
	}
	if r.Pipeline > 0 {
		row("pipelined", "%d under way: floor %.0f a second, hitline %.0f", r.Pipeline, r.FloorRPS, r.HitlineRPS)
		row("ratio", "%.3f (%.3f to %.3f)", r.RPSRatio, r.RPSRatioMin, r.RPSRatioMax)
	}
	if r.IdleCPU != nil {
		row("idle", "%.2f ms of CPU a second", *r.IdleCPU)
	}
	row("wrong", "%d", r.Wrong)
	_, err := io.WriteString(w, text.String())
	return err
}
