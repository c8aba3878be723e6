// Package linktest holds what a program gets that imports the client or the service and
// no server.
package linktest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	_ "github.com/hitline/hitline/lookup"
	_ "github.com/hitline/hitline/lookup/client"
)

// An empty test of a program that imports client and service finds no goroutine of theirs.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEmpty(*testing.T) {}

// deps returns the packages that those of args link, their own and those of others.
func deps(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-deps"}, args...)...).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

func TestClientLinksLittle(t *testing.T) {
	const module = "github.com/hitline/hitline/"
	all := deps(t, module+"lookup/client")
	require.LessOrEqual(t, len(all), 190) // 70 of them are for TLS
	for _, pkg := range all {
		for _, heavy := range []string{
			"gnet", "ants", "gobreaker", "go.uber.org/zap", "net/http", "prometheus",
			module + "index", module + "simd", module + "backend", module + "lookup/server",
			module + "router", module + "blockhash",
		} {
			require.NotContains(t, pkg, heavy)
		}
		require.NotEqual(t, module+"lookup", pkg, "the service")
	}
}

func TestServiceLinksNoEventLoops(t *testing.T) {
	for _, pkg := range deps(t, "github.com/hitline/hitline/lookup") {
		for _, heavy := range []string{"gnet", "ants", "go.uber.org/zap", "net/http", "lookup/server", "lookup/client"} {
			require.NotContains(t, pkg, heavy)
		}
	}
}

// A server without a router links nothing of it, nor do the tests of the lookup.
func TestLookupLinksNoRouter(t *testing.T) {
	all := deps(t, "-test", "github.com/hitline/hitline/lookup/...")
	require.Contains(t, all, "github.com/hitline/hitline/lookup/server.test")
	for _, pkg := range all {
		require.NotContains(t, pkg, "hitline/hitline/router")
	}
}

// The client, the wire and the service compile for systems that the server is not for.
func TestBuildsElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for three systems")
	}
	for _, system := range []string{"windows", "darwin", "freebsd"} {
		cmd := exec.Command("go", "build", "github.com/hitline/hitline/lookup/client", "github.com/hitline/hitline/netproto", "github.com/hitline/hitline/lookup")
		cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", system, out)
	}
}
