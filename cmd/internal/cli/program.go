package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/internal/printable"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// Program is a program of several commands. An error of a command ends it with ExitFailed, or with
// the exit code of its class: the classes of this package, those of package client, the end of a
// deadline, which is ExitLost, and those of the program itself.
type Program struct {
	// Root is the root command, prepared by Prepare. A program runs it once.
	Root *cobra.Command
	// Usage are further classes of wrong usage, for which --help helps.
	Usage []error
	// Input are further classes of wrong configuration or input.
	Input []error
	// Lost are further classes of connections and servers that are lost.
	Lost []error
	// Signals says that the end of the context of Run is an interruption, as by NotifyContext. An
	// error after it is "interrupted", with ExitFailed.
	Signals bool
}

// Run runs one command line, without the program's name, and returns the exit code. An error is
// one line on standard error, and with --json another one on standard output:
// {"error": …, "exit": …}.
func (p Program) Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p.Root.SetArgs(args)
	p.Root.SetIn(stdin)
	p.Root.SetOut(stdout)
	p.Root.SetErr(stderr)
	started := false
	observeStart(p.Root, &started)
	cmd, err := p.Root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return ExitDone
	case !started && !errors.Is(err, api.ErrConfig): // cobra refused the command line
		err = WithClass(wordRequired(err), ErrUsage)
	case p.Signals && ctx.Err() != nil: // whatever else failed, failed of it
		err = classified{errInterrupted, err}
	}
	return p.report(cmd, args, err)
}

// missingFlags matches cobra's error of required flags that are not given.
var missingFlags = regexp.MustCompile(`^required flag\(s\) "(.*)" not set$`)

// wordRequired words that error as Required does.
func wordRequired(err error) error {
	if match := missingFlags.FindStringSubmatch(err.Error()); match != nil {
		return Required(strings.Split(match[1], `", "`)...)
	}
	return err
}

// observeStart makes the commands below cmd set started when they begin. cobra has no hook behind
// all of its own checks.
func observeStart(cmd *cobra.Command, started *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return run(cmd, args)
		}
	}
	for _, child := range cmd.Commands() {
		observeStart(child, started)
	}
}

// report prints the error of a command and returns the exit code.
func (p Program) report(cmd *cobra.Command, args []string, err error) int {
	code, text := p.ExitCode(err), err.Error()
	for _, class := range p.Usage { // its name is none of a place
		text = strings.Replace(text, class.Error()+": ", "", 1)
	}
	if wantsJSON(cmd, args) && !errors.Is(err, ErrReported) {
		_ = WriteJSON(cmd.OutOrStdout(), struct { // there is nothing else to report with
			Error string `json:"error"`
			Exit  int    `json:"exit"`
		}{text, code})
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", p.Root.Name(), printable.Text(text))
	if code == ExitUsage && p.isUsage(err) {
		fmt.Fprintf(cmd.ErrOrStderr(), "hint: %s --help\n", cmd.CommandPath())
	}
	return code
}

// ExitCode returns the exit code for an error, or for none.
func (p Program) ExitCode(err error) int {
	switch {
	case err == nil:
		return ExitDone
	case errors.Is(err, errInterrupted):
		return ExitFailed
	case p.isUsage(err), isAny(err, p.Input), errors.Is(err, api.ErrConfig), errors.Is(err, client.ErrRequest):
		return ExitUsage
	case isAny(err, p.Lost), errors.Is(err, client.ErrConnect), errors.Is(err, client.ErrNoAnswer),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ExitLost
	}
	return ExitFailed
}

func (p Program) isUsage(err error) bool {
	return errors.Is(err, ErrUsage) || isAny(err, p.Usage)
}

// isAny reports whether err is of one of the classes.
func isAny(err error, classes []error) bool {
	return slices.ContainsFunc(classes, func(class error) bool { return errors.Is(err, class) })
}

// wantsJSON reports whether --json is given. Parsing stops at a wrong flag, so args after it count
// too; and where no command is found it may be meant for one.
func wantsJSON(cmd *cobra.Command, args []string) bool {
	asJSON, err := cmd.Flags().GetBool("json")
	takesJSON := err == nil || cmd.HasSubCommands()
	return asJSON || takesJSON && slices.ContainsFunc(args, isJSONFlag)
}

// isJSONFlag reports whether an argument asks for JSON, as --json or --json=true does.
func isJSONFlag(arg string) bool {
	value, given := strings.CutPrefix(arg, "--json=")
	on, err := strconv.ParseBool(value)
	return arg == "--json" || given && err == nil && on
}
