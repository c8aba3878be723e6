package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// errDeclined is the answer no to a question whether to go on.
var errDeclined = errors.New("nothing was changed, as the answer was not y or yes")

// confirm asks a question on standard error and reads the answer from standard input. It returns
// nil for yes and errDeclined for all else, and an error of usage if there is no terminal for both.
func confirm(cmd *cobra.Command, question string) error {
	if !isTerminal(cmd.InOrStdin()) || !isTerminal(cmd.ErrOrStderr()) {
		return usagef("--yes is required, as there is no terminal to ask at")
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr()) // the cursor is behind the question
		return errDeclined              // part of a line is no answer
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errDeclined
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
