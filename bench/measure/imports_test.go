package measure

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What measures stands on the shared packages and imports none of its like.
func TestImportsOfBench(t *testing.T) {
	const bench = "github.com/hitline/hitline/bench/"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, bench+"...").Output()
	require.NoError(t, err)
	measuring := []string{"load", "replay", "compare", "vllm", "holders"}
	found := 0
	for line := range strings.Lines(string(out)) {
		pkg, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, of := range strings.Fields(imports) {
			require.NotContains(t, of, "/hitline/cmd/", pkg)
			require.False(t, pkg == bench+"measure" && strings.HasPrefix(of, bench), "%s imports %s", pkg, of)
			for _, other := range measuring {
				require.False(t, of == bench+other, "%s imports %s", pkg, of)
			}
		}
		for _, name := range measuring {
			if pkg == bench+name {
				found++
			}
		}
	}
	require.Equal(t, len(measuring), found, "a package has another name")
}
