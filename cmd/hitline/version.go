package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/internal/buildinfo"
	"github.com/hitline/hitline/simd"
)

// buildVersion returns the version of this program, "devel" if it is unknown.
func buildVersion() string {
	return buildinfo.Read().Version
}

// newVersionCmd returns the command that prints the version and the kernels.
func newVersionCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print what this program is and which kernels it uses",
		Long: `version prints the version, the commit if it is known and whether the source had
uncommitted changes, the Go release and platform it was built with, the kernel
in use (HITLINE_KERNEL forces one) and those that this processor can run.

With --json: {"version", "commit", "time", "modified", "go", "platform",
"kernel", "kernels"}; an unknown commit or time is empty`,
		Example: "  hitline version\n  HITLINE_KERNEL=generic hitline version",
		Args:    cli.NoArgs,
	}
	addJSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := simd.ForceFromEnv(); err != nil {
			return configError(err)
		}
		result := struct {
			buildinfo.Info
			Kernel  string   `json:"kernel"`
			Kernels []string `json:"kernels"`
		}{buildinfo.Read(), simd.Kernel(), simd.Kernels()}
		text := fmt.Sprintf("%s\nkernel %s, of %s", result.Lines("hitline"), result.Kernel, strings.Join(result.Kernels, ", "))
		return cli.PrintResult(cmd, asJSON, result, text)
	}
	return cmd
}
