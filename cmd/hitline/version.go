package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/simd"
)

// version is set by the release build (-ldflags "-X main.version=v1.2.3"). Other builds
// have the version of the module.
var version string

// buildVersion returns the version of this program, "devel" if it is unknown.
func buildVersion() string {
	return cli.ReadBuild(version).Version
}

// newVersionCmd returns the command that prints the version and the kernels.
func newVersionCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print what this program is and which kernels it uses",
		Long: `version prints the version, the Go release and platform it was built with, the
kernel in use (HITLINE_KERNEL forces one) and those that this processor can run,
and the default revision.

With --json: {"version", "go", "platform", "kernel", "kernels", "revision"}`,
		Example: "  hitline version\n  HITLINE_KERNEL=generic hitline version",
		Args:    cli.NoArgs,
	}
	addJSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := simd.ForceFromEnv(); err != nil {
			return configError(err)
		}
		result := struct {
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
			result.Version, result.Go, result.Platform, result.Kernel, strings.Join(result.Kernels, ", "), result.Revision)
		return cli.PrintResult(cmd, asJSON, result, text)
	}
	return cmd
}
