package cli

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// wholeDuration matches a duration that has its units, as package time wants them.
var wholeDuration = regexp.MustCompile(`^[+-]?([0-9.]+(ns|us|µs|ms|s|m|h))+$`)

// seconds is a duration as users of wrk type it. It is for pflag.
type seconds time.Duration

// DurationVarP defines a flag for a duration that may be a bare number, which is of seconds: 10,
// 0.5, 500ms. All flags of durations are made by it.
func DurationVarP(flags *pflag.FlagSet, d *time.Duration, name, shorthand string, value time.Duration, usage string) {
	*d = value
	f := flags.VarPF((*seconds)(d), name, shorthand, usage)
	if value == 0 {
		f.DefValue = "" // help does not show it then
	}
}

// Set reads a text of a command line.
func (s *seconds) Set(text string) error {
	number, err := strconv.ParseFloat(text, 64)
	if err == nil {
		if math.IsNaN(number) || math.Abs(number) > math.MaxInt64/float64(2*time.Second) {
			return fmt.Errorf("%s is no number of seconds", text)
		}
		*s = seconds(math.Round(number * float64(time.Second)))
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil && wholeDuration.MatchString(text) {
		return fmt.Errorf("the duration is out of range")
	}
	if err != nil {
		return fmt.Errorf("write seconds, such as 10, or a duration, such as 500ms or 2m")
	}
	*s = seconds(d)
	return nil
}

// String returns the duration as Go writes it.
func (s *seconds) String() string { return time.Duration(*s).String() }

// Type returns the name of the value in help.
func (s *seconds) Type() string { return "duration" }
