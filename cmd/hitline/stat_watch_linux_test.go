package main

import (
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

// On a terminal each block is drawn over the one before, below the last notice.
func TestStatWatchOnTerminal(t *testing.T) {
	controller, terminal := openTerminal(t)
	address := startScript(t, replyStat(`{"instance":"a","lookups":5}`), hangUp, replyStat(`{"instance":"b","pools":2}`))
	var stderr strings.Builder
	code := run(context.Background(), []string{"stat", "--watch", "--interval", "1ms", "-n", "2", "--connect", address}, nil, terminal, &stderr)
	assert.Equal(t, exitDone, code, stderr.String())
	require.NoError(t, terminal.Close())
	text, _ := io.ReadAll(controller) // it ends with EIO
	screens := strings.Split(string(text), "\x1b[H")
	require.Len(t, screens, 4)
	const time = `\d\d:\d\d:\d\d  `
	assert.Regexp(t, `hitline .*\x1b\[K\r\ncounter.*\x1b\[K\r\nlookups +5\x1b\[K\r\n.*\x1b\[K\r\n\x1b\[J$`, screens[1])
	assert.Regexp(t, `^`+time+`tcp://.*; trying again\x1b\[K\r\n(?s).*lookups +5\x1b\[K`, screens[2])
	assert.Regexp(t, `^`+time+`the server was restarted\x1b\[K\r\n(?s).*pools +2\x1b\[K\r\n\x1b\[J$`, screens[3])
	assert.Empty(t, stderr.String())

	var out strings.Builder // not with --json
	_, terminal = openTerminal(t)
	defer terminal.Close()
	assert.Nil(t, newStatDisplay(terminal, &target{json: true}).terminal)
	assert.Nil(t, newStatDisplay(&out, &target{}).terminal)
}

// What is higher or wider than the terminal is cut, so that it does not scroll.
func TestStatWatchOnSmallTerminal(t *testing.T) {
	controller, terminal := openTerminal(t)
	require.NoError(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 5, Col: 15}))
	address := startScript(t, replyStat(`{"a":1,"b":2,"c":3,"d":4,"e":5}`))
	var stderr strings.Builder
	code := run(context.Background(), []string{"stat", "--watch", "--interval", "1ms", "-n", "1", "--connect", address}, nil, terminal, &stderr)
	assert.Equal(t, exitDone, code, stderr.String())
	require.NoError(t, terminal.Close())
	text, _ := io.ReadAll(controller)
	assert.Regexp(t, `^\x1b\[H\d{4}-\d\d-\d\d \d\d:\x1b\[K\r\ncounter  total\x1b\[K\r\na        1\x1b\[K\r\n\.\.\. 5 more lin\x1b\[K\r\n\x1b\[J$`, string(text))
	assert.Equal(t, "a\nbc", cut("a\nbc", 0, 0), "a size that is not known")
	assert.Equal(t, "ä\n.", cut("äöü\nb\nc", 1, 2))
}
