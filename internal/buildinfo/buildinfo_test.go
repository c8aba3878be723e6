package buildinfo

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMerge(t *testing.T) {
	const hash = "79a97dc2d3c1b1f1a1a5f1b8f7f1c0de79a97dc2"
	const at = "2026-11-23T23:34:01Z"
	module := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	repository := func(version, modified string) *debug.BuildInfo {
		return module(version, debug.BuildSetting{Key: "vcs.revision", Value: hash}, debug.BuildSetting{Key: "vcs.time", Value: at},
			debug.BuildSetting{Key: "vcs.modified", Value: modified})
	}
	for name, c := range map[string]struct {
		linked   Info
		info     *debug.BuildInfo
		want     Info
		revision string
	}{
		"no build information":        {Info{}, nil, Info{Version: "devel"}, ""},
		"test, or go build of a file": {Info{}, module(""), Info{Version: "devel"}, ""},
		"-buildvcs=false":             {Info{}, module("(devel)"), Info{Version: "devel"}, ""},
		"go install @v0.1.0":          {Info{}, module("v0.1.0"), Info{Version: "v0.1.0"}, ""},
		"go build in a checkout": {Info{}, repository("v0.1.1-0.20261123233401-79a97dc2d3c1", "false"),
			Info{Version: "v0.1.1-0.20261123233401-79a97dc2d3c1", Commit: hash, Time: at}, hash},
		"go build in a changed checkout": {Info{}, repository("v0.1.0+dirty", "true"),
			Info{Version: "v0.1.0+dirty", Commit: hash, Time: at, Modified: true}, hash + "+dirty"},
		"release": {Info{Version: "0.1.0", Commit: hash, Time: at}, module("(devel)"), Info{Version: "v0.1.0", Commit: hash, Time: at}, hash},
		"release, in another repository": {Info{Version: "v0.1.0", Commit: "abc"}, repository("v9.9.9+dirty", "true"),
			Info{Version: "v0.1.0", Commit: "abc"}, "abc"},
		"version alone": {Info{Version: "0.1.0"}, repository("v9.9.9", "false"), Info{Version: "v0.1.0", Commit: hash, Time: at}, hash},
		"snapshot of changes": {Info{Version: "0.1.0-dev.3.gabc", Commit: "abc+dirty"}, module("(devel)"),
			Info{Version: "v0.1.0-dev.3.gabc", Commit: "abc", Modified: true}, "abc+dirty"},
		"version of changes":    {Info{Version: "0.1.0+dirty"}, nil, Info{Version: "v0.1.0+dirty", Modified: true}, ""},
		"time without a commit": {Info{Version: "0.1.0", Time: "now"}, repository("", "false"), Info{Version: "v0.1.0", Commit: hash, Time: "now"}, hash},
		"name":                  {Info{Version: "devel"}, module("v0.1.0"), Info{Version: "devel"}, ""},
	} {
		c.want.Go, c.want.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
		got := merge(c.linked, c.info)
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, c.revision, got.Revision(), name)
	}
}

func TestLines(t *testing.T) {
	b := Info{Version: "v0.1.0", Go: "go1.26.0", Platform: "linux/amd64"}
	assert.Equal(t, "hitline v0.1.0\ngo go1.26.0 linux/amd64", b.Lines("hitline"))
	b.Commit, b.Time = "abc", "2026-11-23T23:34:01Z"
	assert.Equal(t, "hitline v0.1.0\ncommit abc of 2026-11-23T23:34:01Z\ngo go1.26.0 linux/amd64", b.Lines("hitline"))
	b.Time, b.Modified = "", true
	assert.Equal(t, "hitline v0.1.0\ncommit abc, modified\ngo go1.26.0 linux/amd64", b.Lines("hitline"))
}

// The variables that a release sets are there: the linker ignores one that does not exist.
func TestLinkerVariables(t *testing.T) {
	if testing.Short() {
		t.Skip("builds both programs")
	}
	const variable = "-X github.com/hitline/hitline/internal/buildinfo."
	for _, program := range []string{"hitline", "hitbench"} {
		path := filepath.Join(t.TempDir(), program)
		build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path,
			"-ldflags", variable+"version=7.8.9 "+variable+"commit=abc "+variable+"date=2026-11-23T23:34:01Z", "../../cmd/"+program)
		build.Stderr = os.Stderr
		require.NoError(t, build.Run())
		got, err := exec.CommandContext(t.Context(), path, "version").Output()
		require.NoError(t, err)
		assert.Contains(t, string(got), program+" v7.8.9\ncommit abc of 2026-11-23T23:34:01Z\ngo go1.")
		got, err = exec.CommandContext(t.Context(), path, "--version").Output()
		require.NoError(t, err)
		assert.Equal(t, program+" version v7.8.9\n", string(got))
		got, err = exec.CommandContext(t.Context(), path, "version", "--json").Output()
		require.NoError(t, err)
		assert.Contains(t, string(got), `{"version":"v7.8.9","commit":"abc","time":"2026-11-23T23:34:01Z","modified":false,"go":"go1.`)
	}
}
