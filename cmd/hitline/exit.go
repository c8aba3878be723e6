package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/lookup/client"
)

// Exit codes of all commands.
const (
	exitDone  = 0
	exitBad   = 1 // the answer was bad or refused
	exitUsage = 2 // wrong usage or configuration
	exitLost  = 3 // no connection or lost
)

// errUsage is wrapped by mistakes in the command line, and errConfig by those in
// what it refers to; both exit with 2, and help mends only the first.
var (
	errUsage  = errors.New("wrong usage")
	errConfig = errors.New("wrong configuration")
)

// classed gives an error a class without changing its text.
type classed struct {
	error
	class error
}

// Unwrap returns both the error and its class.
func (c classed) Unwrap() []error { return []error{c.error, c.class} }

// usagef is a mistake in the command line.
func usagef(format string, args ...any) error {
	return classed{fmt.Errorf(format, args...), errUsage}
}

// configError is a mistake in a configuration or an input file.
func configError(err error) error { return classed{err, errConfig} }

// exitCode returns the code of an error.
func exitCode(err error) int {
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errUsage), errors.Is(err, errConfig), errors.Is(err, client.ErrRequest):
		return exitUsage
	case errors.Is(err, client.ErrConnect), errors.Is(err, client.ErrNoAnswer), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return exitLost
	}
	return exitBad
}

// errTold is of a failure that standard output tells of already, with --json too.
var errTold = errors.New("told")

// report tells what failed of a command line and returns the exit code.
func report(cmd *cobra.Command, args []string, err error) int {
	code := exitCode(err)
	if err == nil {
		return code
	}
	if wantsJSON(cmd, args) && !errors.Is(err, errTold) {
		line, _ := json.Marshal(struct {
			Error string `json:"error"`
			Exit  int    `json:"exit"`
		}{err.Error(), code})
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n", line)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "hitline: %s\n", printable(err.Error()))
	if errors.Is(err, errUsage) {
		fmt.Fprintf(cmd.ErrOrStderr(), "hint: %s --help\n", cmd.CommandPath())
	}
	return code
}

// wantsJSON tells whether --json is given. Parsing ends at a wrong flag, and it may be
// behind that.
func wantsJSON(cmd *cobra.Command, args []string) bool {
	asJSON, err := cmd.Flags().GetBool("json")
	return asJSON || err == nil && !cmd.Flags().Changed("json") && slices.Contains(args, "--json")
}

// printable makes one line of an error that a server may have worded, fit for a
// terminal.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return '.'
		}
		return c
	}, text)
}
