package cli

import (
	"runtime"
	"runtime/debug"
)

// Build is what a program was built from.
type Build struct {
	Version  string `json:"version"`  // "devel" if it is unknown
	Go       string `json:"go"`       // release of Go
	Platform string `json:"platform"` // system/architecture
}

// ReadBuild returns the build of this program. A version that the linker has set counts; if it is
// empty, the module's does.
func ReadBuild(linked string) Build {
	b := Build{Version: linked, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if b.Version == "" {
		b.Version = "devel"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
	}
	return b
}
