package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// shells are those that newCompletionCmd writes scripts for.
var shells = []string{"bash", "zsh", "fish"}

// newCompletionCmd returns the command that prints the script of a shell that completes command
// lines of the program.
func newCompletionCmd(root *cobra.Command) *cobra.Command {
	program := root.Name()
	return &cobra.Command{
		Use:   "completion " + strings.Join(shells, "|"),
		Short: "Print a script that completes command lines in a shell",
		Long: fmt.Sprintf(`completion prints a script by which a shell completes commands, flags and their
values on the tabulator key. To have it in each new shell, write it to
  bash  ~/.local/share/bash-completion/completions/%[1]s
        (it needs the package bash-completion)
  zsh   _%[1]s in a directory of $fpath, with compinit loaded
  fish  ~/.config/fish/completions/%[1]s.fish`, program),
		Example:   fmt.Sprintf("  source <(%[1]s completion bash)\n  %[1]s completion fish | source", program),
		ValidArgs: shells,
		Args:      OneArg("shell", shells...),
		RunE: func(cmd *cobra.Command, args []string) error {
			write := map[string]func() error{
				"bash": func() error { return root.GenBashCompletionV2(cmd.OutOrStdout(), true) },
				"zsh":  func() error { return root.GenZshCompletion(cmd.OutOrStdout()) },
				"fish": func() error { return root.GenFishCompletion(cmd.OutOrStdout(), true) },
			}[args[0]]
			if err := write(); err != nil {
				return fmt.Errorf("cannot print the script: %w", err)
			}
			return nil
		},
	}
}

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

// completeFlags has shells offer files only where a file is meant: for flags whose text quotes
// `file` or `path` as the name of the value, and for commands that take arguments.
func completeFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value, _ := pflag.UnquoteUsage(f)
		isFile := strings.EqualFold(value, "file") || strings.EqualFold(value, "path")
		if _, registered := cmd.GetFlagCompletionFunc(f.Name); !registered && !isFile {
			Complete[string](cmd, f.Name)
		}
	})
	if cmd.Args != nil && cmd.Args(cmd, []string{"x"}) != nil && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
}

// unquoteFlags takes the quotes from the names of values, which only help understands, from the
// texts of the flags of all commands: shells show these texts.
func unquoteFlags(root *cobra.Command) {
	for _, cmd := range append(root.Commands(), root) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	}
}
