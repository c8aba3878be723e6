package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/hitline/hitline/internal/duration"
)

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
	d, err := duration.Parse(text)
	if err == nil {
		*s = seconds(d)
	}
	return err
}

// String returns the duration as Go writes it.
func (s *seconds) String() string { return time.Duration(*s).String() }

// Type returns the name of the value in help.
func (s *seconds) Type() string { return "duration" }
