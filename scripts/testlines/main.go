// Command testlines prints what go test -json reports, for people: a line for each package whose tests have ended,
// what failed, and what is tested now if nothing has ended for a while.
//
//	go test -json PACKAGE... 2>&1 | testlines PACKAGE...
//
// Its arguments are the import paths of all packages under test, in the order in which go test got them.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	module  = "github.com/hitline/hitline/"
	silence = 5 * time.Second // after it a line says what is tested now
)

func main() {
	lines := make(chan string)
	go func() {
		defer close(lines)
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	newPrinter(os.Stdout, os.Args[1:]).printAll(lines, time.After)
}

// event is a line of go test -json (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// suite is the tests of a package.
type suite struct {
	name    string // of the package
	begun   bool
	ended   bool
	running []string          // tests, the latest last
	state   map[string]string // the latest action of each test
	output  []event
}

// printer prints what the events of go test say.
type printer struct {
	out    io.Writer
	suites []*suite // of all packages, in go test's order
	ended  int
	counts map[string]int // tests by their last action
	failed []string
}

func newPrinter(out io.Writer, packages []string) *printer {
	p := &printer{out: out, counts: map[string]int{}}
	for _, path := range packages {
		p.suite(path)
	}
	return p
}

// suite returns the suite of a package, a new one if it is not known.
func (p *printer) suite(path string) *suite {
	name := strings.TrimPrefix(path, module)
	at := slices.IndexFunc(p.suites, func(s *suite) bool { return s.name == name })
	if at < 0 {
		at = len(p.suites)
		p.suites = append(p.suites, &suite{name: name, state: map[string]string{}})
	}
	return p.suites[at]
}

// printAll prints lines of go test until they end. Each call of after starts the wait for the next line about now.
func (p *printer) printAll(lines <-chan string, after func(time.Duration) <-chan time.Time) {
	quiet := after(silence)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				p.printSummary()
				return
			}
			if p.line(line) {
				quiet = after(silence)
			}
		case <-quiet:
			p.printNow()
			quiet = after(silence)
		}
	}
}

// line handles a line of go test, and reports whether it printed anything.
func (p *printer) line(line string) bool {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Action == "" {
		fmt.Fprint(p.out, line) // of the go command itself
		return true
	}
	if e.Package == "" { // of a build
		fmt.Fprint(p.out, e.Output)
		return e.Output != ""
	}
	s := p.suite(e.Package)
	s.begun = true
	switch {
	case e.Action == "output":
		s.output = append(s.output, e)
	case e.Test != "":
		p.test(s, e)
	case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
		p.end(s, e)
		return true
	}
	return false
}

// test handles an event of a test.
func (p *printer) test(s *suite, e event) {
	s.state[e.Test] = e.Action
	s.running = slices.DeleteFunc(s.running, func(test string) bool { return test == e.Test })
	switch e.Action {
	case "run", "cont":
		s.running = append(s.running, e.Test)
	case "pass", "fail", "skip":
		p.counts[e.Action]++
		if e.Action == "fail" {
			p.failed = append(p.failed, s.name+" "+e.Test)
		}
	}
}

// end handles the last event of a package.
func (p *printer) end(s *suite, e event) {
	s.ended = true
	p.ended++
	took := fmt.Sprintf("%.1f s", e.Elapsed)
	if slices.ContainsFunc(s.output, func(e event) bool { return e.Test == "" && strings.HasSuffix(e.Output, "\t(cached)\n") }) {
		took = "cached"
	}
	if e.Action == "skip" {
		took = "no tests"
	}
	fmt.Fprintf(p.out, "%-4s %d of %d: %s, %s\n", e.Action, p.ended, len(p.suites), s.name, took)
	if e.Action == "fail" {
		p.printFailed(s)
	}
	s.output = nil
}

// printFailed prints the output of a package, without that of tests that passed.
func (p *printer) printFailed(s *suite) {
	if !slices.ContainsFunc(p.failed, func(test string) bool { return strings.HasPrefix(test, s.name+" ") }) {
		p.failed = append(p.failed, s.name)
	}
	for _, o := range s.output {
		state := s.state[o.Test]
		if state != "pass" && state != "skip" && !strings.HasPrefix(o.Output, "=== ") {
			fmt.Fprint(p.out, o.Output)
		}
	}
}

// printNow prints what is tested now, or what is built if nothing is.
func (p *printer) printNow() {
	var now, next []string
	for _, s := range p.suites {
		switch {
		case s.ended:
		case !s.begun:
			next = append(next, s.name)
		case len(s.running) > 0:
			now = append(now, s.name+" "+s.running[len(s.running)-1])
		default:
			now = append(now, s.name)
		}
	}
	what := "testing " + strings.Join(now, ", ")
	if len(now) == 0 {
		what = "building the tests of " + strings.Join(next[:min(2, len(next))], ", ")
	}
	fmt.Fprintf(p.out, "%d of %d packages tested, now %s\n", p.ended, len(p.suites), what)
}

func (p *printer) printSummary() {
	fmt.Fprintf(p.out, "%d tests passed, %d were skipped\n", p.counts["pass"], p.counts["skip"])
	for _, test := range p.failed {
		fmt.Fprintln(p.out, "failed:", test)
	}
}
