package scripts

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scripts/tool names its tools: in its help, and to who gives none or another.
func TestToolNamesItsTools(t *testing.T) {
	c := newCheckout(t, "tool")
	script, err := os.ReadFile("tool")
	require.NoError(t, err)
	var names []string
	for _, pinned := range regexp.MustCompile(`(?m)^([a-z-]+)\)(?:\n\t| )package=`).FindAllStringSubmatch(string(script), -1) {
		names = append(names, pinned[1])
	}
	require.Contains(t, names, "helm")
	assert.True(t, strings.HasSuffix(c.run("scripts/tool", "--help"), "The tools:\n"+strings.Join(names, "\n")))
	all := strings.Join(names, ", ")
	for name, want := range map[string]string{
		"":     "scripts/tool: give the name of a tool, one of " + all,
		"none": "scripts/tool: no tool none; it has " + all,
	} {
		text, code := c.call(nil, "scripts/tool", strings.Fields(name)...)
		assert.Equal(t, want, text)
		assert.Equal(t, 2, code)
	}
}
