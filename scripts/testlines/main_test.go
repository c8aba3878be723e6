package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Each event is a line of go test -json, and "…" is a time without one.
func TestPrinter(t *testing.T) {
	const events = `go: downloading x v1.0.0
…
{"Action":"start","Package":"github.com/hitline/hitline/a"}
{"Action":"run","Package":"github.com/hitline/hitline/a","Test":"TestParallel"}
{"Action":"output","Package":"github.com/hitline/hitline/a","Test":"TestParallel","Output":"=== PAUSE TestParallel\n"}
{"Action":"pause","Package":"github.com/hitline/hitline/a","Test":"TestParallel"}
{"Action":"run","Package":"github.com/hitline/hitline/a","Test":"TestSlow"}
{"Action":"run","Package":"github.com/hitline/hitline/a","Test":"TestSlow/sub"}
{"Action":"start","Package":"github.com/hitline/hitline/b"}
…
{"Action":"output","Package":"github.com/hitline/hitline/a","Test":"TestSlow/sub","Output":"of what passed\n"}
{"Action":"pass","Package":"github.com/hitline/hitline/a","Test":"TestSlow/sub"}
{"Action":"output","Package":"github.com/hitline/hitline/a","Test":"TestSlow","Output":"    a_test.go:3: \"bad\"\n"}
{"Action":"fail","Package":"github.com/hitline/hitline/a","Test":"TestSlow"}
{"Action":"cont","Package":"github.com/hitline/hitline/a","Test":"TestParallel"}
{"Action":"output","Package":"github.com/hitline/hitline/a","Test":"TestParallel","Output":"panic: late\n"}
{"Action":"output","Package":"github.com/hitline/hitline/b","Output":"ok  \tgithub.com/hitline/hitline/b\t(cached)\n"}
{"Action":"pass","Package":"github.com/hitline/hitline/b","Elapsed":0.01}
…
{"Action":"output","Package":"github.com/hitline/hitline/a","Output":"FAIL\n"}
{"Action":"fail","Package":"github.com/hitline/hitline/a","Elapsed":12.34}
{"ImportPath":"github.com/hitline/hitline/c [github.com/hitline/hitline/c.test]","Action":"build-output","Output":"c/c.go:2:23: cannot use x\n"}
{"ImportPath":"github.com/hitline/hitline/c [github.com/hitline/hitline/c.test]","Action":"build-fail"}
{"Action":"fail","Package":"github.com/hitline/hitline/c","Elapsed":0,"FailedBuild":"github.com/hitline/hitline/c"}
{"Action":"skip","Package":"github.com/hitline/hitline/d","Elapsed":0}
`
	const want = `go: downloading x v1.0.0
0 of 4 packages tested, now building the tests of a, b
0 of 4 packages tested, now testing a TestSlow/sub, b
pass 1 of 4: b, cached
1 of 4 packages tested, now testing a TestParallel
fail 2 of 4: a, 12.3 s
    a_test.go:3: "bad"
panic: late
FAIL
c/c.go:2:23: cannot use x
fail 3 of 4: c, 0.0 s
skip 4 of 4: d, no tests
1 tests passed, 0 were skipped
failed: a TestSlow
failed: c
`
	lines, quiet := make(chan string), make(chan time.Time)
	go func() {
		defer close(lines)
		for line := range strings.Lines(events) {
			if line == "…\n" {
				quiet <- time.Time{}
			} else {
				lines <- line
			}
		}
	}()
	var out strings.Builder
	p := newPrinter(&out, []string{module + "a", module + "b", module + "c", module + "d"})
	p.printAll(lines, func(time.Duration) <-chan time.Time { return quiet })
	assert.Equal(t, want, out.String())
}
