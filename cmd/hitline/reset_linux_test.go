package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal(t *testing.T) (controller, terminal *os.File) {
	t.Helper()
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = controller.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(controller.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(controller.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	return controller, terminal
}

// askAtTerminal runs a command line with a terminal as standard input and standard error, and
// types answer when the question is there. It returns the question and what followed it.
func askAtTerminal(t *testing.T, answer string, args ...string) (question, rest, stdout string, code int) {
	t.Helper()
	controller, terminal := openTerminal(t)
	var out strings.Builder
	ended := make(chan int, 1)
	go func() {
		ended <- run(context.Background(), args, terminal, &out, terminal)
		terminal.Close()
	}()
	in := bufio.NewReader(controller)
	for !strings.HasSuffix(question, "[y/N] ") {
		c, err := in.ReadByte()
		require.NoError(t, err, question)
		question += string(c)
	}
	_, err := io.WriteString(controller, answer)
	require.NoError(t, err)
	code = <-ended
	text, _ := io.ReadAll(in) // it ends with EIO
	return question, string(text), out.String(), code
}

// On a terminal reset asks, and does nothing unless the answer is yes.
func TestResetAsks(t *testing.T) {
	server := startServe(t, "pool: {model_name: a}\npools: {big: {model_name: b}}\n")
	fill := func() { require.Equal(t, exitDone, runClient(t, server.address, "store --hashes-file -").code) }
	entries := func() string {
		got := runClient(t, server.address, "stat --json")
		_, after, _ := strings.Cut(got.stdout, `"entries":`)
		return after[:1]
	}
	fill()
	for _, answer := range []string{"\n", "n\n", "yep\n", "\x04", "y\x04\x04"} { // Control-D ends the input
		question, rest, stdout, code := askAtTerminal(t, answer, "reset", "--connect", server.address)
		assert.Equal(t, "Forget all blocks of the server's own pool at "+server.address+"? [y/N] ", question)
		assert.Equal(t, exitFailed, code, answer)
		assert.Empty(t, stdout)
		assert.Contains(t, rest, "\nhitline: nothing was changed") // a line of its own
		assert.Equal(t, "2", entries(), answer)
	}
	_, _, stdout, code := askAtTerminal(t, "n\n", "reset", "--json", "--connect", server.address)
	assert.Equal(t, exitFailed, code)
	assert.Regexp(t, `^\{"error":"nothing was changed.*","exit":1\}\n$`, stdout)

	for _, answer := range []string{"y\n", "Y\n", " Yes \n"} {
		_, _, stdout, code := askAtTerminal(t, answer, "reset", "--connect", server.address)
		assert.Equal(t, exitDone, code, answer)
		assert.Equal(t, "done\n", stdout)
		assert.Equal(t, "0", entries(), answer)
		fill()
	}
	question, _, _, _ := askAtTerminal(t, "n\n", "reset", "--pool", "big", "--tp-rank", "3", "--group", "1", "--connect", server.address)
	assert.Equal(t, `Forget all blocks of tp-rank 3 of group 1 of pool "big" at `+server.address+"? [y/N] ", question)
	fill()
	assert.Equal(t, result{exitDone, "done\n", ""}, runClient(t, server.address, "reset -y"))
	assert.Equal(t, "0", entries())
}
