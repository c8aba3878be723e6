// Package buildinfo says what a program was built from: its version, the commit and the release of Go.
package buildinfo

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
)

// Info is what a program was built from.
type Info struct {
	Version  string `json:"version"`  // such as v1.2.3; "devel" if it is unknown
	Commit   string `json:"commit"`   // revision of the source; empty if it is unknown
	Time     string `json:"time"`     // of the commit, RFC 3339; empty if it is unknown
	Modified bool   `json:"modified"` // whether the source had changes that were not committed
	Go       string `json:"go"`       // release of Go
	Platform string `json:"platform"` // system/architecture
}

// dirty marks a version or a commit whose source was modified, as the go command does.
const dirty = "+dirty"

// The linker of a release sets these by -X github.com/hitline/hitline/internal/buildinfo.version=0.1.0 and so on:
// scripts/version --ldflags. The date is that of the commit, RFC 3339. A commit that ends in +dirty had changes.
var version, commit, date string

// Read returns what this program was built from. What the linker set counts first; the go command's own
// build information fills in the rest: the version of a module that `go install` fetched, or the state
// of the repository that `go build` ran in.
func Read() Info {
	info, _ := debug.ReadBuildInfo()
	return merge(Info{Version: version, Commit: commit, Time: date}, info)
}

// merge fills in what the linker left empty from info, which may be nil.
func merge(b Info, info *debug.BuildInfo) Info {
	b.Go, b.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	if info == nil {
		info = &debug.BuildInfo{}
	}
	if b.Version == "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	if b.Commit == "" { // otherwise the repository's state may be that of another commit
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.Time = cmp.Or(b.Time, s.Value)
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	commit, modified := strings.CutSuffix(b.Commit, dirty)
	b.Commit = commit
	b.Modified = b.Modified || modified || strings.HasSuffix(b.Version, dirty)
	if b.Version != "" && b.Version[0] >= '0' && b.Version[0] <= '9' {
		b.Version = "v" + b.Version // one version has one name, however it was built
	}
	b.Version = cmp.Or(b.Version, "devel")
	return b
}

// Revision returns the commit with +dirty behind it if the source was modified; empty if it is unknown.
func (b Info) Revision() string {
	if b.Commit == "" || !b.Modified {
		return b.Commit
	}
	return b.Commit + dirty
}

// Lines returns what `program version` prints: the version, the commit if it is known, and the
// release of Go.
func (b Info) Lines(program string) string {
	text := program + " " + b.Version
	if b.Commit != "" {
		text += "\ncommit " + b.Commit
		if b.Time != "" {
			text += " of " + b.Time
		}
		if b.Modified {
			text += ", modified"
		}
	}
	return text + "\ngo " + b.Go + " " + b.Platform
}
