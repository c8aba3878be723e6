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
	exitDone         = 0
	exitFailed       = 1 // the answer was bad or refused, or doctor has found a problem
	exitUsage        = 2 // wrong usage or configuration
	exitNoConnection = 3 // no connection or lost
)

// The classes of errors that exit with 2. errUsage is of the command line, for which
// --help helps; errConfig is of a configuration or an input file.
var (
	errUsage  = errors.New("wrong usage")
	errConfig = errors.New("wrong configuration")
)

// classifiedError adds a class to an error without changing its text.
type classifiedError struct {
	error
	class error
}

// Unwrap returns both the error and its class.
func (c classifiedError) Unwrap() []error { return []error{c.error, c.class} }

// usagef returns an error of the class errUsage.
func usagef(format string, args ...any) error {
	return classifiedError{fmt.Errorf(format, args...), errUsage}
}

// configError adds the class errConfig.
func configError(err error) error { return classifiedError{err, errConfig} }

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errUsage), errors.Is(err, errConfig), errors.Is(err, client.ErrRequest):
		return exitUsage
	case errors.Is(err, client.ErrConnect), errors.Is(err, client.ErrNoAnswer), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return exitNoConnection
	}
	return exitFailed
}

// errReported is the class of errors that a command has printed on standard output itself.
var errReported = errors.New("reported")

// reportError prints the error of a command and returns the exit code.
func reportError(cmd *cobra.Command, args []string, err error) int {
	code := exitCode(err)
	if err == nil {
		return code
	}
	if wantsJSON(cmd, args) && !errors.Is(err, errReported) {
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

// wantsJSON reports whether --json is given. Parsing stops at a wrong flag, so args after
// it count too.
func wantsJSON(cmd *cobra.Command, args []string) bool {
	asJSON, err := cmd.Flags().GetBool("json")
	return asJSON || err == nil && !cmd.Flags().Changed("json") && slices.Contains(args, "--json")
}

// printable replaces control characters, also those that reorder text. A server may have worded
// an error, which must not span lines or control the terminal.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) {
			return '.'
		}
		return c
	}, text)
}
