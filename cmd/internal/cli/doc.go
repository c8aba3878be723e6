// Package cli has what the command lines of hitline and hitbench share: how a program runs and
// ends, what it prints of an error, help, completion, and flags that both have.
//
// A program makes a root command, adds its commands (AddGroup gives some of them a title in help)
// and calls Prepare. Program.Run then runs one command line:
//
//	root := &cobra.Command{Use: "hitbench", Short: …, Long: …, Example: …}
//	cli.AddGroup(root, "Measure", a.runCommand(), a.replayCommand())
//	cli.Prepare(root)
//	os.Exit(cli.Program{Root: root}.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
//
// Commands have RunE, never Run, and return errors of the classes of this package; see Program.
// Their texts of flags are one sentence each, without line breaks: help wraps them.
package cli
