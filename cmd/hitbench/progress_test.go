package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The status stands below the lines that stay, and is gone at the end.
func TestStatus(t *testing.T) {
	var out bytes.Buffer
	p := progress{w: &out, terminal: true}
	p.step("store", 1, 4)
	p.step("store", 2, 4) // too soon
	p.step("rounds", 0, 3)
	p.line("problem")
	p.finish()
	assert.Equal(t, "\r\x1b[Kstore: 1 of 4\r\x1b[Krounds: 0 of 3\r\x1b[Khitbench: problem\n", out.String())
	out.Reset()
	q := newProgress(&out)
	q.step("no terminal", 1, 3)
	assert.Empty(t, out.String(), "what is soon over says nothing")
	q.next = time.Now()
	q.step("no terminal", 2, 3)
	q.step("no terminal", 3, 3)
	q.finish()
	assert.Equal(t, "hitbench: no terminal: 2 of 3\n", out.String())
}

// Problems are described until a pattern shows, each kind by itself.
func TestProblems(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	for i := range 2 * maxDescribed {
		p.problem("wrong", fmt.Sprintf("wrong %d", i))
	}
	p.problem("refused", "full")
	assert.Equal(t, maxDescribed, strings.Count(out.String(), "hitbench: wrong "))
	assert.Equal(t, 1, strings.Count(out.String(), "hitbench: further problems of this kind are counted, not described\n"))
	assert.Contains(t, out.String(), "hitbench: full\n")
}
