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
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// newStatCmd returns the command that prints the server's counters.
func newStatCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "stat",
		Short: "Print the counters of the server",
		Long: `stat prints what the server counts, one key a line.

With --json: the same as one JSON object.`,
		Example: "  hitline stat\n  hitline stat --json | jq .entries",
		Args:    cli.NoArgs,
	}
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		stat, err := ask(cmd.Context(), &t, func(ctx context.Context, c *client.Client) (api.Stat, error) { return c.Stat(ctx) })
		if err != nil {
			return err
		}
		if t.json {
			return cli.PrintResult(cmd, true, stat, "")
		}
		text, err := json.Marshal(stat)
		if err != nil {
			return err
		}
		table, err := formatTable(text)
		if err != nil {
			return err
		}
		return printText(cmd, table)
	}
	return cmd
}

// formatTable writes a JSON object as a table: a line for each value, sorted, with the
// keys that lead to it joined by dots. Neither can control a terminal.
func formatTable(object json.RawMessage) (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber() // a float64 would lose digits of counters
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
