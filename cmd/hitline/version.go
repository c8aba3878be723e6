package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/simd"
)

// version is set by the release build (-ldflags "-X main.version=v1.2.3"); what
// go build and go install know is used when it is not.
var version string

// buildVersion returns the version of this program, "devel" if nothing is known.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// newVersion returns the command that tells what this program is.
func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print what this program is and which kernels it uses",
		Long: `version prints the version, the Go release and platform it was built with, the
kernel in use (HITLINE_KERNEL forces one) and those that this processor can run,
and the default revision.

With --json: {"version", "go", "platform", "kernel", "kernels", "revision"}`,
		Example: "  hitline version\n  HITLINE_KERNEL=generic hitline version",
		Args:    noArgs,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := simd.ForceFromEnv(); err != nil {
			return configError(err)
		}
		about := struct {
			Version  string   `json:"version"`
			Go       string   `json:"go"`
			Platform string   `json:"platform"`
			Kernel   string   `json:"kernel"`
			Kernels  []string `json:"kernels"`
			Revision string   `json:"revision"`
		}{
			buildVersion(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH,
			simd.Kernel(), simd.Kernels(), coordinator.Revision(0).String(),
		}
		text := fmt.Sprintf("hitline %s\ngo %s %s\nkernel %s, of %s\nrevision %s by default",
			about.Version, about.Go, about.Platform, about.Kernel, strings.Join(about.Kernels, ", "), about.Revision)
		return printResult(cmd, asJSON, about, text)
	}
	return cmd
}
