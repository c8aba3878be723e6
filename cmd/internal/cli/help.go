package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// columns is the width of help: that of the narrowest usual terminal.
const columns = 80

// Annotations of a flag: the title of its group, and the help topic that explains it in place of the command's help.
const groupAnnotation, topicAnnotation = "group", "topic"

// AddGroup adds commands to root, which help lists under a title.
func AddGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, cmd := range commands {
		cmd.GroupID = title
	}
	root.AddCommand(commands...)
}

// FlagGroup adds the flags that define defines to those of a command. Help lists them under a
// title, behind the flags of no group.
func FlagGroup(flags *pflag.FlagSet, title string, define func(group *pflag.FlagSet)) {
	addAnnotated(flags, groupAnnotation, title, define)
}

// TopicFlags adds the flags that define defines to those of a command. Its help names the topic alone, which has the
// same flags: see AddTopic.
func TopicFlags(flags *pflag.FlagSet, topic string, define func(group *pflag.FlagSet)) {
	addAnnotated(flags, topicAnnotation, topic, define)
}

// AddTopic adds a help topic to root: a text, and flags that many commands have.
func AddTopic(root *cobra.Command, name, short, long string, define func(flags *pflag.FlagSet)) {
	topic := &cobra.Command{Use: name, Short: short, Long: long}
	define(topic.Flags())
	topic.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintln(cmd.OutOrStdout(), long)
		_ = printUsage(cmd) // where the text is lost, so are the flags
	})
	root.AddCommand(topic)
}

func addAnnotated(flags *pflag.FlagSet, annotation, value string, define func(group *pflag.FlagSet)) {
	group := pflag.NewFlagSet(value, pflag.ContinueOnError)
	group.SortFlags = false
	define(group)
	group.VisitAll(func(f *pflag.Flag) {
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[annotation] = []string{value}
		flags.AddFlag(f)
	})
}

// Prepare completes a root command to which all commands were added: help with groups of flags, and
// refusals of unknown commands and flags. Flags are listed in the order of their definition. It sets
// no templates of cobra: text/template calls methods by name, so the linker would keep those of all
// packages, 10 MB of a program.
func Prepare(root *cobra.Command) {
	root.Args = refuseUnknown
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.SilenceErrors, root.SilenceUsage = true, true // Program prints them
	root.SetFlagErrorFunc(suggestFlag)
	root.SetUsageFunc(printUsage)
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil && help != root {
		help.Args = func(_ *cobra.Command, args []string) error {
			if found, _, _ := root.Find(args); found != root {
				return nil
			}
			return refuseUnknown(root, args)
		}
	}
}

// printUsage prints what help has below the text of a command. It is for cobra.Command.SetUsageFunc.
func printUsage(cmd *cobra.Command) error {
	var b strings.Builder
	use := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		use = cmd.CommandPath() + " COMMAND [flags]"
	}
	if cmd.Runnable() {
		fmt.Fprintf(&b, "Usage:\n  %s\n", use)
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	printCommands(&b, cmd)
	printFlags(&b, cmd)
	if !cmd.HasParent() {
		fmt.Fprintf(&b, "\n%s help COMMAND explains a command.\n", cmd.CommandPath())
	}
	for _, topic := range cmd.Commands() {
		if topic.IsAdditionalHelpTopicCommand() {
			fmt.Fprintf(&b, "%s help %s %s.\n", cmd.CommandPath(), topic.Name(), topic.Short)
		}
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}

// printCommands prints the commands below cmd by groups, and last those of none.
func printCommands(b *strings.Builder, cmd *cobra.Command) {
	for _, group := range append(cmd.Groups(), &cobra.Group{Title: "Other:"}) {
		title := "\n" + group.Title + "\n"
		for _, child := range cmd.Commands() {
			if child.GroupID == group.ID && child.IsAvailableCommand() {
				fmt.Fprintf(b, "%s  %-*s %s\n", title, child.NamePadding(), child.Name(), child.Short)
				title = ""
			}
		}
	}
}

// printFlags prints the flags of cmd, and then those of each group.
func printFlags(b *strings.Builder, cmd *cobra.Command) {
	var titles []string
	topic := ""
	groups := map[string]*pflag.FlagSet{}
	cmd.Flags().SortFlags = false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if of := f.Annotations[topicAnnotation]; len(of) > 0 {
			topic = of[0]
			return
		}
		if (f.Name == "help" || f.Name == "version") && (!cmd.Runnable() || !cmd.HasParent()) { // known, and help is to be short
			return
		}
		title := "Flags:"
		if named := f.Annotations[groupAnnotation]; len(named) > 0 {
			title = named[0] + ":"
		}
		group := groups[title]
		if group == nil {
			group = pflag.NewFlagSet(title, pflag.ContinueOnError)
			group.SortFlags = false
			groups[title] = group
			titles = append(titles, title)
		}
		shown := *f
		shown.Usage = strings.Join(strings.Fields(f.Usage), " ") // wrapped below
		group.AddFlag(&shown)
	})
	for _, title := range titles {
		if groups[title].HasAvailableFlags() {
			fmt.Fprintf(b, "\n%s\n%s", title, groups[title].FlagUsagesWrapped(columns))
		}
	}
	if topic != "" {
		fmt.Fprintf(b, "\nFlags of the %s: %s help %s\n", topic, cmd.Root().Name(), topic)
	}
}
