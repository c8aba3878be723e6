package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
	answer, err := readAnswer(cmd.Context(), cmd.InOrStdin())
	if answer == "" {
		fmt.Fprintln(cmd.ErrOrStderr()) // the cursor is behind the question
	}
	if err != nil {
		return err
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

// readAnswer returns a line of in, empty at its end. If ctx ends before, the goroutine that reads
// ends with in or with this process: a read of a terminal cannot be interrupted.
func readAnswer(ctx context.Context, in io.Reader) (string, error) {
	line := make(chan string, 1)
	go func() {
		text, err := bufio.NewReader(in).ReadString('\n')
		if err != nil {
			text = "" // part of a line is no answer
		}
		line <- text
	}()
	select {
	case text := <-line:
		return text, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
