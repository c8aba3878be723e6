package picture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hitline/hitline/bench/measure"
)

// report is what is used of the reports of all commands; each has a part of it.
type report struct {
	Error   string // of a command that failed
	Partial bool
	Wrong   int

	// How a server was loaded.
	Mode        string // closed or open
	Dialect     string
	Connections int
	Pipeline    int
	Hashes      asGiven

	// What was replayed.
	Trace    string
	Requests int
	Speed    float64 // times as fast as recorded; 0 flat out

	P50  float64 `json:"p50_us"`
	P90  float64 `json:"p90_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`

	Rows []struct { // of a comparison
		Wrong  int
		Rival  string
		Hashes int
		P50    float64        `json:"p50_us"`
		Rounds measure.Spread `json:"p50_us_rounds"` // of the rounds' medians

		// Of what make e2e measured in an engine.
		Measured, Mode string
		Tokens         int     // of the streams
		P50ms          float64 `json:"p50_ms"`
		P90ms          float64 `json:"p90_ms"`
		P99ms          float64 `json:"p99_ms"`
		P999ms         float64 `json:"p999_ms"`
		Maxms          float64 `json:"max_ms"`
	}
	Windows []struct { // of a replay
		Start    float64 `json:"start_s"`
		Requests int
		HitRatio float64 `json:"hit_ratio"` // 0 to 1
		P50      float64 `json:"p50_us"`
		P99      float64 `json:"p99_us"`
	}
}

// asGiven is a number or a text such as "64-4096".
type asGiven string

// UnmarshalJSON implements json.Unmarshaler.
func (a *asGiven) UnmarshalJSON(b []byte) error {
	*a = asGiven(strings.Trim(string(b), `"`))
	return nil
}

// decode reads a report, and fails unless it is sound.
func decode(s Source) (report, error) {
	var r report
	if err := decodeOne(s.JSON, &r); err != nil {
		return r, fmt.Errorf("%w: %s: %w; give it what a command printed with --json", ErrInput, s.Name, err)
	}
	wrong := r.Wrong
	for _, row := range r.Rows {
		wrong = max(wrong, row.Wrong)
	}
	switch {
	case r.Error != "":
		return r, fmt.Errorf("%w: %s is of a command that failed: %s", ErrInput, s.Name, r.Error)
	case r.Partial:
		return r, fmt.Errorf("%w: %s is of a run that was cut short; measure again", ErrInput, s.Name)
	case wrong > 0:
		return r, fmt.Errorf("%w: %s has %d wrong answers; its times mean nothing", ErrInput, s.Name, wrong)
	}
	return r, nil
}

// decodeOne reads the one JSON object that text holds.
func decodeOne(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("it is empty")
		}
		return fmt.Errorf("not a report: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows the first JSON object")
	}
	return nil
}

// lacks is the error for a source that has nothing of what is drawn.
func lacks(s Source, what, command string) error {
	return fmt.Errorf("%w: %s has no %s; take what %s prints", ErrInput, s.Name, what, command)
}

// load describes how a server was loaded, in parts, without what is not known.
func (r report) load() []string {
	var parts []string
	if r.Mode != "" {
		parts = append(parts, r.Mode+" loop")
	}
	if r.Connections > 0 {
		parts = append(parts, plural(r.Connections, "connection"))
	}
	if r.Pipeline > 1 {
		parts = append(parts, strconv.Itoa(r.Pipeline)+" under way on each")
	}
	if r.Hashes != "" {
		parts = append(parts, string(r.Hashes)+" hashes a lookup")
	}
	if r.Dialect != "" {
		parts = append(parts, r.Dialect+" dialect")
	}
	return parts
}

// traced describes how a trace was replayed, in parts.
func (r report) traced() []string {
	pace := fmt.Sprintf("%g times as fast as recorded", r.Speed)
	switch r.Speed {
	case 0:
		pace = "one after the other, flat out"
	case 1:
		pace = "as fast as recorded"
	}
	return []string{filepath.Base(r.Trace), plural(r.Requests, "request"), pace}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
