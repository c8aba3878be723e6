package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// watch runs a measurement with a line that says how it goes, which run passes on to it.
func watch[Report any](a *app, run func(*progress) (Report, error)) (Report, error) {
	p := newProgress(a.stderr)
	defer p.finish()
	return run(p)
}

// answers counts those of a report that are not right.
type answers struct {
	wrong    int64 // that contradict what is right
	refused  int64 // that say "not served"
	requests int64 // all that were measured; 0 if that says nothing
}

// err returns an error if an answer was wrong or refused.
func (n answers) err() error {
	switch {
	case n.wrong == 0 && n.refused == 0:
		return nil
	case n.requests > 0:
		return fmt.Errorf("%d answers are wrong, %d requests were refused; %d requests were measured", n.wrong, n.refused, n.requests)
	case n.refused > 0:
		return fmt.Errorf("%d answers are wrong, %d requests were refused", n.wrong, n.refused)
	}
	return fmt.Errorf("%d answers are wrong", n.wrong)
}

// finish prints the report of a measurement on standard output, also the partial one of a
// measurement that failed with err. It returns err, or else an error if an answer was not right.
func (a *app) finish(report measure.Report, asJSON bool, err error, n answers) error {
	if printErr := a.show(report, asJSON); printErr != nil {
		return cmp.Or(err, printErr)
	}
	return cli.WithClass(cmp.Or(err, n.err()), cli.ErrReported)
}

// show prints a report on standard output.
func (a *app) show(report measure.Report, asJSON bool) error {
	if asJSON {
		return cli.WriteJSON(a.stdout, report)
	}
	var text strings.Builder
	_ = report.WriteTable(&text) // a Builder never fails
	return cli.WriteText(a.stdout, text.String())
}
