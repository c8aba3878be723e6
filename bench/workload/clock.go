package workload

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// maxSpan bounds the time from a trace's first request to its last. A longer one
// means timestamps in another unit than milliseconds, or that some are wrong.
const maxSpan = 366 * 24 * time.Hour

// timestamp is that of a line, in milliseconds, and not judged until a replay
// needs it: a trace that is replayed flat out may hold anything there.
type timestamp struct {
	given bool
	ms    float64
	bad   string // what is there if it is no number, cut short
}

// UnmarshalJSON reads text, which encoding/json has found to be valid JSON. It
// does not fail.
func (t *timestamp) UnmarshalJSON(text []byte) error {
	*t = timestamp{given: true}
	var err error
	if t.ms, err = strconv.ParseFloat(string(text), 64); err != nil {
		t.bad = fmt.Sprintf("%.24s", text)
	}
	return nil
}

// traceClock turns the timestamps of a reading into times since the first one.
// The zero value is ready.
type traceClock struct {
	began       bool
	first, last float64 // milliseconds
}

// at returns the time of the next request.
func (c *traceClock) at(t timestamp) (time.Duration, error) {
	switch {
	case !t.given:
		return 0, errors.New("timestamp is missing; a replay at a speed needs one on every line, in milliseconds")
	case t.bad != "":
		return 0, fmt.Errorf("timestamp is %s; it must be a number of milliseconds", t.bad)
	case !c.began:
		c.began, c.first, c.last = true, t.ms, t.ms
	case t.ms < c.last:
		return 0, fmt.Errorf("timestamp %v is before %v, the line above's; put the lines in order of time", t.ms, c.last)
	case t.ms-c.first > float64(maxSpan.Milliseconds()):
		return 0, fmt.Errorf("timestamp %v is over a year after the first, %v; timestamps are in milliseconds", t.ms, c.first)
	}
	c.last = t.ms
	return time.Duration((t.ms - c.first) * float64(time.Millisecond)), nil
}
