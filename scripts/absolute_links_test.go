package scripts

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Links into the repository lead to GitHub, from whatever folder they begin. Others stay.
func TestAbsoluteLinks(t *testing.T) {
	for _, program := range []string{"bash", "perl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	const blob, raw = "https://github.com/hitline/hitline/blob/v1.2.3/", "https://raw.githubusercontent.com/hitline/hitline/v1.2.3/"
	for _, c := range []struct{ folder, page, want string }{
		{".", "[a\npage](docs/log.md#part), [here](#part)\n", "[a\npage](" + blob + "docs/log.md#part), [here](#part)\n"},
		{".", "[a site](https://example.org/a)\n", "[a site](https://example.org/a)\n"},
		{"deploy/helm", "[one](../../README.md) ![two](./b.png)\n", "[one](" + blob + "README.md) ![two](" + raw + "deploy/helm/b.png)\n"},
		{"deploy/", "[one]: ../README.md\n[two]: https://example.org\n", "[one]: " + blob + "README.md\n[two]: https://example.org\n"},
		{"docs", `<img src="b.svg" srcset="https://example.org/c.svg">`, `<img src="` + raw + `docs/b.svg" srcset="https://example.org/c.svg">`},
		{"docs", `<a href="b.md"><source srcset="c.svg"></a><a href="#b">`, `<a href="` + blob + `docs/b.md"><source srcset="` + raw + `docs/c.svg"></a><a href="#b">`},
	} {
		cmd := exec.CommandContext(t.Context(), "./absolute-links", c.folder, "v1.2.3")
		cmd.Stdin = strings.NewReader(c.page)
		got, err := cmd.Output()
		require.NoError(t, err)
		assert.Equal(t, c.want, string(got))
	}
	require.Error(t, exec.CommandContext(t.Context(), "./absolute-links", "no-folder").Run())
}

// Pages of a release lead to its tag, others to the main branch.
func TestAbsoluteLinksOfARelease(t *testing.T) {
	r := newRelease(t)
	link := func() string {
		return r.run("bash", "-c", "echo '[a](README.md)' | HITLINE_TAG= scripts/absolute-links .")
	}
	assert.Equal(t, "[a](https://github.com/hitline/hitline/blob/main/README.md)", link())
	r.run("git", "tag", "v0.1.0")
	assert.Equal(t, "[a](https://github.com/hitline/hitline/blob/v0.1.0/README.md)", link())
}
