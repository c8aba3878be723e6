package floor

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hitline/hitline/bench/internal/figure"
)

// Report is the result of Run.
type Report struct {
	Dialect string `json:"dialect"`
	Connect string `json:"connect,omitempty"` // the server that Run did not start

	Hashes   int `json:"hashes"`
	Entries  int `json:"entries"` // hashes that Run stored
	Chains   int `json:"chains"`
	Rounds   int `json:"rounds"`
	Requests int `json:"requests"` // a round and server
	Wrong    int `json:"wrong"`    // answers, of all requests

	FloorP50us   float64 `json:"floor_p50_us"` // medians of the rounds, to 0.01 us
	HitlineP50us float64 `json:"hitline_p50_us"`
	Ratio        float64 `json:"ratio"` // of the two before
	RatioMin     float64 `json:"ratio_min"`
	RatioMax     float64 `json:"ratio_max"`
	FloorP99us   float64 `json:"floor_p99_us"`
	HitlineP99us float64 `json:"hitline_p99_us"`

	Anchored *AnchoredReport `json:"anchored,omitempty"`

	FloorCPUus   float64  `json:"floor_cpu_us"` // CPU time a request; medians of the rounds
	HitlineCPUus *float64 `json:"hitline_cpu_us,omitempty"`

	Pipeline    int     `json:"pipeline,omitempty"`
	FloorRPS    float64 `json:"floor_rps,omitempty"` // requests a second; medians of the rounds
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
// and of such as leave what is stored at a random block. Medians of the rounds;
// ratios to the floor server, which reads all hashes of either.
type AnchoredReport struct {
	HitP50us   float64 `json:"hit_p50_us"`
	HitRatio   float64 `json:"hit_ratio"`
	HitP99us   float64 `json:"hit_p99_us"`
	HitRatio99 float64 `json:"hit_p99_ratio"`

	MissP50us   float64 `json:"miss_p50_us"`
	MissRatio   float64 `json:"miss_ratio"`
	MissP99us   float64 `json:"miss_p99_us"`
	MissRatio99 float64 `json:"miss_p99_ratio"`
}

func (a *AnchoredReport) ratios(r *Report) {
	a.HitRatio, a.HitRatio99 = figure.Round3(a.HitP50us/r.FloorP50us), figure.Round3(a.HitP99us/r.FloorP99us)
	a.MissRatio, a.MissRatio99 = figure.Round3(a.MissP50us/r.FloorP50us), figure.Round3(a.MissP99us/r.FloorP99us)
}

// WriteJSON writes the report as one line of JSON.
func (r Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteTable writes the report as lines of name and value, for people.
func (r Report) WriteTable(w io.Writer) error {
	var text strings.Builder
	row := func(name, format string, values ...any) {
		fmt.Fprintf(&text, "%-12s %s\n", name, fmt.Sprintf(format, values...))
	}
	row("request", "%d hashes, %s dialect", r.Hashes, r.Dialect)
	row("index", "%d entries in %d chains", r.Entries, r.Chains)
	row("working set", "%d MiB; last-level cache %d MiB", r.WorkingSet>>20, r.LLC>>20)
	if len(r.Cores) == 2 {
		row("cores", "client %d, servers %d", r.Cores[0], r.Cores[1])
	} else {
		row("cores", "not pinned")
	}
	row("rounds", "%d of %d requests a server", r.Rounds, r.Requests)
	row("floor", "p50 %.2f us, p99 %.2f us, %.2f us of CPU", r.FloorP50us, r.FloorP99us, r.FloorCPUus)
	cpu := ""
	if r.HitlineCPUus != nil {
		cpu = fmt.Sprintf(", %.2f us of CPU", *r.HitlineCPUus)
	}
	row("hitline", "p50 %.2f us, p99 %.2f us%s", r.HitlineP50us, r.HitlineP99us, cpu)
	row("ratio", "%.3f (%.3f to %.3f)", r.Ratio, r.RatioMin, r.RatioMax)
	if a := r.Anchored; a != nil {
		row("hits", "p50 %.2f us, ratio %.3f; p99 %.2f us, ratio %.3f", a.HitP50us, a.HitRatio, a.HitP99us, a.HitRatio99)
		row("misses", "p50 %.2f us, ratio %.3f; p99 %.2f us, ratio %.3f", a.MissP50us, a.MissRatio, a.MissP99us, a.MissRatio99)
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

// series holds a figure of each round, of the floor server and of hitline.
type series [2][]float64

func (s *series) add(server int, figure float64) { s[server] = append(s[server], figure) }

// medians returns the median of each, their ratio, and the least and the largest
// ratio of a round.
func (s *series) medians() (floor, hitline, ratio, least, most float64) {
	floor, hitline = figure.Median(s[0]), figure.Median(s[1])
	ratios := make([]float64, len(s[0]))
	for i := range ratios {
		ratios[i] = figure.Round3(s[1][i] / s[0][i])
	}
	return floor, hitline, figure.Round3(hitline / floor), slices.Min(ratios), slices.Max(ratios)
}
