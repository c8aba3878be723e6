// Testlog reads what go test -json says and prints a line for each package as it ends, and of one that failed the output
// of its failed tests. On a terminal a last line says where the tests are: go test itself prints packages in the order
// in which they were named, and the slowest ones first mean minutes without a line.
//
// Its argument is how many packages are tested.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// module begins the names of packages, and says nothing.
const module = "github.com/hitline/hitline/"

func main() {
	total := 0
	if len(os.Args) == 2 {
		total, _ = strconv.Atoi(os.Args[1])
	}
	if total < 1 {
		fmt.Fprintln(os.Stderr, "usage: go test -json PACKAGE... | testlog NUMBER-OF-PACKAGES")
		os.Exit(2)
	}
	l := &log{out: os.Stdout, total: total, begun: time.Now(), packages: map[string]*tested{}}
	if term.IsTerminal(int(os.Stdout.Fd())) {
		go l.showStatus(time.Tick(time.Second))
	}
	l.read(os.Stdin)
}

// event is what go test says, see go doc test2json.
type event struct {
	Action, Package, Test, Output string
}

// log prints events. Safe for concurrent use.
type log struct {
	out   io.Writer
	total int
	begun time.Time

	mu       sync.Mutex
	packages map[string]*tested // that run
	done     int                // packages
	status   bool               // there is a last line that changes
}

// tested is a package that is tested.
type tested struct {
	lines []line // without those of tests that passed
}

// line is a line of output of a test, or of the package itself.
type line struct{ test, text string }

// read prints all events. What is none is printed as it is.
func (l *log) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			e = event{Action: "build-output", Output: lines.Text() + "\n"}
		}
		l.mu.Lock()
		l.add(e)
		l.mu.Unlock()
	}
	l.mu.Lock()
	l.clear()
	l.mu.Unlock()
}

func (l *log) add(e event) {
	if e.Action == "build-output" {
		l.print(e.Output)
		return
	}
	p := l.packages[e.Package]
	if p == nil {
		p = &tested{}
		l.packages[e.Package] = p
	}
	switch {
	case e.Action == "output":
		p.lines = append(p.lines, line{e.Test, e.Output})
	case e.Test != "" && (e.Action == "pass" || e.Action == "skip"):
		p.lines = slices.DeleteFunc(p.lines, func(l line) bool { return l.test == e.Test })
	case e.Test == "" && (e.Action == "pass" || e.Action == "skip" || e.Action == "fail"):
		l.done++
		delete(l.packages, e.Package)
		l.printPackage(p, e.Action)
	}
}

// printPackage prints what is to be said of a package that has ended.
func (l *log) printPackage(p *tested, action string) {
	for _, one := range p.lines {
		isResult := one.test == "" && strings.HasPrefix(one.text, "ok")
		switch {
		case isResult:
			l.print(fmt.Sprintf("%s\t%d of %d\n", strings.TrimRight(one.text, "\n"), l.done, l.total))
		case action == "fail":
			l.print(one.text)
		}
	}
}

// showStatus shows at each tick how far the tests are.
func (l *log) showStatus(ticks <-chan time.Time) {
	for now := range ticks {
		l.mu.Lock()
		l.clear()
		l.status = true
		fmt.Fprint(l.out, l.statusAt(now))
		l.mu.Unlock()
	}
}

// statusAt returns how far the tests are, in less than a line.
func (l *log) statusAt(now time.Time) string {
	const most = 3
	var names []string
	for name := range l.packages {
		names = append(names, strings.TrimPrefix(name, module))
	}
	slices.Sort(names)
	more := ""
	if len(names) > most {
		names, more = names[:most], ", …"
	}
	return fmt.Sprintf("%d of %d packages, %v: %s%s", l.done, l.total, now.Sub(l.begun).Round(time.Second), strings.Join(names, ", "), more)
}

func (l *log) print(text string) {
	l.clear()
	fmt.Fprint(l.out, text)
}

// clear removes the last line.
func (l *log) clear() {
	if l.status {
		fmt.Fprint(l.out, "\r\x1b[K")
		l.status = false
	}
}
