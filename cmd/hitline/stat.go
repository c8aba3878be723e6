package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/lookup/client"
)

// newStatCmd returns the command that prints the server's counters.
func newStatCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "stat",
		Short: "Print the counters of the server, once or again and again",
		Long: `stat prints what the server counts, one key a line.

With --watch it asks again and again, and prints the counters that have changed
since the time before, with their increase a second, and the gauges; the first
time the counters since the start of the server. On a terminal it redraws them
in place. If the server has answered and no longer does, it says so and tries
again at each interval; a restarted server begins anew. It ends after --requests
answers, or at an interrupt (Ctrl-C) with 0.

With --json: the server's own JSON; with --watch one line each time.`,
		Example: "  hitline stat\n  hitline stat --watch\n  hitline stat --json | jq .entries",
		Args:    cli.NoArgs,
	}
	watch := cmd.Flags().BoolP("watch", "w", false, "ask again and again")
	requests := requestsFlag(cmd, "with --watch: end after this `number` of answers (default no end)")
	interval := intervalFlag(cmd)
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		switch {
		case *interval <= 0:
			return usagef("--interval is %v, must be more than 0", *interval)
		case *watch:
			return watchStat(cmd, &t, *requests, *interval)
		}
		for _, name := range []string{"requests", "interval"} {
			if cmd.Flags().Changed(name) {
				return usagef("--%s is of no use without --watch", name)
			}
		}
		s := session{target: &t}
		defer s.close()
		stat, err := s.stat(cmd.Context())
		if err != nil {
			return err
		}
		format := formatTable
		if t.json {
			format = formatLine
		}
		text, err := format(stat)
		if err != nil {
			return t.badStat(err)
		}
		return printText(cmd, text)
	}
	return cmd
}

// stat returns the server's counters as JSON.
func (s *session) stat(ctx context.Context) (stat json.RawMessage, err error) {
	err = s.do(ctx, func(ctx context.Context, c *client.Client) (err error) {
		stat, err = c.Stat(ctx)
		return err
	})
	return stat, err
}

// badStat returns the error of an answer that is no JSON object.
func (t *target) badStat(err error) error {
	return fmt.Errorf("%s: bad answer to stat: %w", t.connect, err)
}

// formatLine returns a JSON document in one line. A document without line breaks is
// returned unchanged.
func formatLine(document json.RawMessage) (string, error) {
	if !bytes.ContainsAny(document, "\r\n") {
		return string(document), nil
	}
	var out bytes.Buffer
	err := json.Compact(&out, document)
	return out.String(), err
}

// formatTable writes a JSON object as a table: a line for each value, sorted, with the
// keys that lead to it joined by dots.
func formatTable(object json.RawMessage) (string, error) {
	flat, err := flattenObject(object)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, key := range slices.Sorted(maps.Keys(flat)) {
		fmt.Fprintf(w, "%s\t%s\n", key, flat[key])
	}
	if err := w.Flush(); err != nil {
		return "", err
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// flattenObject returns the values of a JSON object by the keys that lead to them, joined by dots.
// Neither can control a terminal.
func flattenObject(object json.RawMessage) (map[string]string, error) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber() // a float64 would lose digits of counters
	var fields map[string]any
	if err := decoder.Decode(&fields); err != nil {
		return nil, err
	}
	flat := map[string]string{}
	flatten(flat, "", fields)
	return flat, nil
}

// flatten adds the values of fields to flat. Their keys begin with prefix.
func flatten(flat map[string]string, prefix string, fields map[string]any) {
	for key, value := range fields {
		key = prefix + cli.Printable(key)
		switch v := value.(type) {
		case map[string]any:
			flatten(flat, key+".", v)
		case string:
			flat[key] = cli.Printable(v)
		default:
			text, _ := json.Marshal(v) // v was decoded from JSON
			flat[key] = cli.Printable(string(text))
		}
	}
}
