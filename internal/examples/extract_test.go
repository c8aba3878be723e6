package examples

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestReadPage(t *testing.T) {
	page := "# Title\n\nSee `hitline stat\n--json`, or `ping`.\n\n    $ hitline ping \\\n          --count 2\n    pong\n\n    $ jq .\n\n" +
		"| `a \\| b` |\n\n```yaml\nlisten: []\n```\n\n```python\nprint()\n```\n\n```sh\nmake x\n```\n"
	examples, yaml := readPage("p.md", page)
	assert.Equal(t, []example{
		{where: "p.md:3", text: "hitline stat --json", inline: true},
		{where: "p.md:4", text: "ping", inline: true},
		{where: "p.md:6", text: "$ hitline ping \\\n      --count 2\npong\n\n$ jq .", inline: false},
		{where: "p.md:12", text: "a | b", inline: true},
		{where: "p.md:23", text: "make x", inline: false},
	}, examples)
	assert.Equal(t, []string{"listen: []\n"}, yaml)
}

func TestCommandLines(t *testing.T) {
	for _, tt := range []struct {
		block string
		want  []string
	}{
		{"a\n\n# comment\nb # c", []string{"a", "b # c"}},
		{"$ a \\\n  b\nprinted\n$ c", []string{"a \\\n  b", "c"}},
		{"curl -d '{\n}'\nd", []string{"curl -d '{\n}'", "d"}},
		{`e "\"` + "\n" + `f"`, []string{`e "\"` + "\n" + `f"`}},
		{"never 'closed", []string{"never 'closed\n"}},
	} {
		assert.Equal(t, tt.want, commandLines(tt.block), tt.block)
	}
}

func TestSimpleCommands(t *testing.T) {
	for line, want := range map[string][]string{
		"bin/hitline serve --block-size 16 &   # listens":            {"hitline serve --block-size 16"},
		"until bin/hitline ping 2>/dev/null; do sleep 0.1; done":     {"hitline ping", "sleep 0.1"},
		"seq 64 | hitline hash | hitline lookup --hashes-file -":     {"seq 64", "hitline hash", "hitline lookup --hashes-file -"},
		"(umask 077; hitline token > engines.token)":                 {"umask 077", "hitline token"},
		"A=1 B='x y' hitline version":                                {"hitline version"},
		"chrt -r 10 bin/hitbench compare --holders 64":               {"hitbench compare --holders 64"},
		`curl --json "{\"h\": \"$(tr '\n' ' ' <hashes)\"}" http://a`: {`curl --json "{\"h\": \"$(tr '\n' ' ' <hashes)\"}" http://a`},
		`cp bin/hitline "$(dirname "$(command -v python3)")"`:        {`cp bin/hitline "$(dirname "$(command -v python3)")"`},
		"jq . hashes 2>&1 | tr a b":                                  {"jq . hashes", "tr a b"},
		"printf 1 2 >hashes":                                         {"printf 1 2"},
	} {
		assert.Equal(t, want, simpleCommands(line), line)
	}
}
