package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The status stands below the lines that stay, and is gone at the end.
func TestStatus(t *testing.T) {
	var out bytes.Buffer
	p := progress{w: &out, terminal: true}
	p.setStatus("first")
	p.setStatus("too soon after")
	p.line("problem")
	p.finish()
	assert.Equal(t, "\r\x1b[Kfirst\r\x1b[Khitbench: problem\n", out.String())
	out.Reset()
	p = progress{w: &out}
	p.setStatus("no terminal")
	p.step("phase", 1, 2)
	p.finish()
	assert.Empty(t, out.String())
}

// The bar names its phase, begins anew with the next, and is gone at the end.
func TestBar(t *testing.T) {
	var out bytes.Buffer
	p := progress{w: &out, terminal: true}
	p.step("fill", 1, 4)
	p.describe("fill, at 0:01")
	p.step("fill", 2, 4)
	p.step("rounds", 1, 3)
	p.note("one core")
	p.finish()
	text := out.String()
	for _, want := range []string{"fill  25%", "fill, at 0:01  ", "(2/4", "rounds  33%", "(1/3"} {
		assert.Contains(t, text, want)
	}
	assert.Contains(t, text, "\rhitbench: note: one core\n")
	assert.NotContains(t, text[strings.Index(text, "one core"):], "rounds")
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
