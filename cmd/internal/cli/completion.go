package cli

import "github.com/spf13/cobra"

// Complete has shells complete the values of a flag of cmd by a list. It panics if there is no
// such flag.
func Complete[Value ~string](cmd *cobra.Command, flag string, values ...Value) {
	texts := make([]cobra.Completion, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(texts, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}
