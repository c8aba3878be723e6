package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Packages are printed as they end, and of failed ones what failed tests have said.
func TestLog(t *testing.T) {
	var out strings.Builder
	l := &log{out: &out, total: 4, begun: time.Unix(0, 0), packages: map[string]*tested{}}
	l.read(strings.NewReader(`{"Action":"start","Package":"github.com/hitline/hitline/slow"}
{"Action":"start","Package":"github.com/hitline/hitline/fast"}
{"Action":"output","Package":"github.com/hitline/hitline/fast","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"pass","Package":"github.com/hitline/hitline/fast","Test":"TestGood"}
{"Action":"output","Package":"github.com/hitline/hitline/fast","Output":"PASS\n"}
{"Action":"output","Package":"github.com/hitline/hitline/fast","Output":"ok  \tgithub.com/hitline/hitline/fast\t0.1s\n"}
{"Action":"pass","Package":"github.com/hitline/hitline/fast"}
{"Action":"start","Package":"none"}
{"Action":"output","Package":"none","Output":"?   \tnone\t[no test files]\n"}
{"Action":"skip","Package":"none"}
{"ImportPath":"broken","Action":"build-output","Output":"x.go:1:1: syntax error\n"}
go: a line that is no event
`))
	assert.Equal(t, "ok  \tgithub.com/hitline/hitline/fast\t0.1s\t1 of 4\nx.go:1:1: syntax error\ngo: a line that is no event\n", out.String())
	assert.Equal(t, "2 of 4 packages, 1m40s: slow", l.statusAt(time.Unix(100, 0)))

	out.Reset()
	l.status = true
	l.read(strings.NewReader(`{"Action":"output","Package":"slow","Test":"TestGood","Output":"good\n"}
{"Action":"output","Package":"slow","Test":"TestBad","Output":"    x_test.go:1: bad\n"}
{"Action":"output","Package":"slow","Test":"TestBad/sub","Output":"    --- FAIL: TestBad/sub\n"}
{"Action":"skip","Package":"slow","Test":"TestGood"}
{"Action":"fail","Package":"slow","Test":"TestBad"}
{"Action":"output","Package":"slow","Output":"FAIL\tslow\t2s\n"}
{"Action":"fail","Package":"slow"}
`))
	assert.Equal(t, "\r\x1b[K    x_test.go:1: bad\n    --- FAIL: TestBad/sub\nFAIL\tslow\t2s\n", out.String())
}
