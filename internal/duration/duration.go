// Package duration reads the durations that people write: flags, configurations and requests read them alike.
package duration

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

// whole matches a duration that has its units, as package time wants them.
var whole = regexp.MustCompile(`^[+-]?([0-9.]+(ns|us|µs|ms|s|m|h))+$`)

// Parse reads a duration as package time writes it, such as 500ms or 1m30s, or a bare number, which is of seconds: 10, 0.5.
// It may be negative.
func Parse(text string) (time.Duration, error) {
	number, err := strconv.ParseFloat(text, 64)
	if err == nil {
		if math.IsNaN(number) || math.Abs(number) > math.MaxInt64/float64(2*time.Second) {
			return 0, fmt.Errorf("%s is no number of seconds", text)
		}
		return time.Duration(math.Round(number * float64(time.Second))), nil
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && whole.MatchString(text):
		return 0, errors.New("the duration is out of range")
	case err != nil:
		return 0, errors.New("write seconds, such as 10, or a duration, such as 500ms or 2m")
	}
	return d, nil
}
