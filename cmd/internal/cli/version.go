package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/internal/buildinfo"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/simd"
)

// VersionCommand returns the command of a program that prints its version and the kernels.
func VersionCommand(program string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print what this program is and which kernels it uses",
		Long: `version prints the version, the commit if it is known and whether the source had
uncommitted changes, the Go release and platform it was built with, the kernel
in use (HITLINE_KERNEL forces one) and those that this processor can run.

With --json: {"version", "commit", "time", "modified", "go", "platform",
"kernel", "kernels"}; an unknown commit or time is empty`,
		Example: fmt.Sprintf("  %[1]s version\n  HITLINE_KERNEL=generic %[1]s version", program),
		Args:    NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := simd.ForceFromEnv(); err != nil {
				return WithClass(err, api.ErrConfig)
			}
			result := struct {
				buildinfo.Info
				Kernel  string   `json:"kernel"`
				Kernels []string `json:"kernels"`
			}{buildinfo.Read(), simd.Kernel(), simd.Kernels()}
			text := fmt.Sprintf("%s\nkernel %s, of %s", result.Lines(program), result.Kernel, strings.Join(result.Kernels, ", "))
			return PrintResult(cmd, asJSON, result, text)
		},
	}
	JSONFlag(cmd.Flags(), &asJSON)
	return cmd
}
