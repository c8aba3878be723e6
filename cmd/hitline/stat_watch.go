package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/hitline/hitline/cmd/internal/cli"
)

// watchStat prints the counters of a server at an interval, until it has answered as many requests,
// or until an interrupt if that is 0. It waits for a server that goes away.
func watchStat(cmd *cobra.Command, t *target, requests uint, interval time.Duration) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	s := session{target: t}
	defer s.close()
	display := newStatDisplay(cmd.OutOrStdout(), t)
	for next, shown := time.Now(), uint(0); (requests == 0 || shown < requests) && waitUntil(ctx, next); {
		next = time.Now().Add(interval)
		ok, err := watchOnce(ctx, &s, display)
		if err != nil && ctx.Err() == nil { // not interrupted
			return err
		}
		if ok {
			shown++
		}
	}
	return nil
}

// watchOnce shows the counters, or that the server does not answer. It returns an error if the
// server has never answered, or if another attempt would fail as well.
func watchOnce(ctx context.Context, s *session, display *statDisplay) (ok bool, err error) {
	stat, err := s.stat(ctx)
	if err != nil && ctx.Err() == nil && display.last != nil && isLost(err) {
		return false, display.reportLost(err)
	}
	if err != nil {
		return false, err
	}
	if s.target.json {
		line, err := formatLine(stat)
		if err != nil {
			return false, s.target.badStat(err)
		}
		stat = []byte(line)
	}
	sample, err := readSample(stat, time.Now())
	if err != nil {
		return false, s.target.badStat(err)
	}
	return true, display.showSample(sample, string(stat))
}

// statDisplay prints samples and what happens to the server between them.
type statDisplay struct {
	out      io.Writer
	target   *target
	terminal *os.File // redraw in place; nil if it is none
	last     *statSample
	block    string // of last
	isLost   bool
	notice   string // the last one
}

func newStatDisplay(out io.Writer, t *target) *statDisplay {
	d := &statDisplay{out: out, target: t}
	if !t.json {
		d.terminal = terminalOf(out)
	}
	return d
}

// showSample prints a sample. document is its JSON in one line, if that is to be printed.
func (d *statDisplay) showSample(now *statSample, document string) error {
	before := d.last
	switch {
	case before != nil && now.fields["instance"] != before.fields["instance"]:
		d.notify("the server was restarted")
		before = nil
	case d.isLost:
		d.notify("the server answers again")
	}
	d.isLost, d.last = false, now
	if d.target.json {
		return d.print(document)
	}
	d.block = now.format(before)
	if d.terminal != nil {
		return d.redraw()
	}
	return d.print(d.block + "\n") // an empty line between blocks
}

// reportLost says that the server does not answer, once until it does.
func (d *statDisplay) reportLost(err error) error {
	if !d.isLost {
		d.isLost = true
		d.notify(cli.Printable(err.Error()) + "; trying again")
	}
	if d.terminal != nil {
		return d.redraw()
	}
	return nil
}

// notify keeps a line for redraw, or prints it on standard error.
func (d *statDisplay) notify(text string) {
	if d.terminal != nil {
		d.notice = time.Now().Format(time.TimeOnly) + "  " + text
		return
	}
	d.target.warn(text)
}

// redraw replaces what is on the terminal, line by line, so that it does not flicker.
func (d *statDisplay) redraw() error {
	const home, clearRestOfLine, clearRest = "\x1b[H", "\x1b[K", "\x1b[J"
	text := d.block
	if d.notice != "" {
		text = d.notice + "\n" + text
	}
	if width, height, err := term.GetSize(int(d.terminal.Fd())); err == nil {
		text = cut(text, width-1, height-1) // clearing ends the line after it, and the cursor is below all
	}
	text = strings.ReplaceAll(text, "\n", clearRestOfLine+"\n")
	return d.print(home + text + clearRestOfLine + "\n" + clearRest)
}

// cut returns what fits a terminal, which would scroll otherwise, at each redraw. A size that is not positive is
// not known.
func cut(text string, width, height int) string {
	lines := strings.Split(text, "\n")
	if height > 0 && len(lines) > height {
		more := len(lines) - height + 1
		lines = append(lines[:height-1], fmt.Sprintf("... %d more lines", more))
	}
	for i, line := range lines {
		if runes := []rune(line); width > 0 && len(runes) > width {
			lines[i] = string(runes[:width])
		}
	}
	return strings.Join(lines, "\n")
}

// print writes text, with a newline unless it is for a terminal.
func (d *statDisplay) print(text string) error {
	if d.terminal == nil {
		text += "\n"
	}
	if _, err := io.WriteString(d.out, text); err != nil {
		return fmt.Errorf("cannot print the answer: %w", err)
	}
	return nil
}
