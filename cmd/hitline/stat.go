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

	"github.com/hitline/hitline/lookup/client"
)

// newStat returns the command that prints the server's counters.
func newStat() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "stat",
		Short: "Print the counters of the server",
		Long: `stat prints what the server counts, one key a line.

With --json: the server's own JSON.`,
		Example: "  hitline stat\n  hitline stat --json | jq .entries",
		Args:    noArgs,
	}
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		var stat json.RawMessage
		err := t.ask(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
			stat, err = c.Stat(ctx)
			return err
		})
		if err != nil {
			return err
		}
		layout := table
		if t.json {
			layout = oneLine
		}
		text, err := layout(stat)
		if err != nil {
			return fmt.Errorf("%s: bad answer to stat: %w", t.connect, err)
		}
		return printText(cmd, text)
	}
	return cmd
}

// oneLine returns JSON as it is, unless it spans lines.
func oneLine(document json.RawMessage) (string, error) {
	if !bytes.ContainsAny(document, "\r\n") {
		return string(document), nil
	}
	var out bytes.Buffer
	err := json.Compact(&out, document)
	return out.String(), err
}

// table lays out a JSON object for people: one line for each value, sorted, with
// the keys that lead to it joined by dots.
func table(object json.RawMessage) (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber() // counters have more digits than a float
	var fields map[string]any
	if err := decoder.Decode(&fields); err != nil {
		return "", err
	}
	flat := map[string]string{}
	flatten(flat, "", fields)
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

// flatten adds the values below fields to flat.
func flatten(flat map[string]string, before string, fields map[string]any) {
	for key, value := range fields {
		switch v := value.(type) {
		case map[string]any:
			flatten(flat, before+key+".", v)
		case string:
			flat[before+key] = v
		default:
			text, _ := json.Marshal(v) // what came out of JSON goes back
			flat[before+key] = string(text)
		}
	}
}
