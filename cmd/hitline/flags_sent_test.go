package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/fakeserver"
)

// flagRow says what a flag changes in what a command sends or prints.
type flagRow struct {
	with, without string // arguments with the flag, and what to compare them with
	base          string // is removed from the command's own arguments
	want          string // is sent or printed with the flag, and not without
	secure        bool   // over TLS
}

// What each flag of a command that asks a server changes. A row of COMMAND FLAG goes before one of FLAG.
func flagRows(files map[string]string) map[string]flagRow {
	secure := "--tls-ca " + files["ca"] + " "
	return map[string]flagRow{
		"json":            {with: "--json", want: "\n{"},
		"timeout":         {with: "--timeout 1ns", without: "--timeout 5s", want: "within 1ns"},
		"token-file":      {with: "--token-file " + files["token"], want: "the-token"},
		"tls-ca":          {with: secure, want: "TLS to", secure: true},
		"tls-cert":        {with: secure + "--tls-cert " + files["crt"] + " --tls-key " + files["key"], without: secure, want: "of [engine.example]", secure: true},
		"tls-key":         {with: secure + "--tls-cert " + files["crt"] + " --tls-key " + files["key"], without: secure, want: "of [engine.example]", secure: true},
		"tls-server-name": {with: secure + "--tls-server-name other.example", without: secure, want: `TLS to "other.example"`, secure: true},
		"pool":            {with: "--pool q", want: `pool {"name":"q"}`},
		"hashes-file":     {with: "--hashes-file " + files["hashes"], without: "--hashes-file -", base: "--hashes-file -", want: strings.Repeat("cd", 32)},
		"group":           {with: "--group 258", want: "0102"},
		"tp-rank":         {with: "--tp-rank 258", want: "0102"},
		"pp-rank":         {with: "--pp-rank 258", want: "0102"},
		"pcp-rank":        {with: "--pcp-rank 258", want: "0102"},
		"yes":             {with: "--yes", base: "--yes", want: "\nreset"},

		"lookup tokens": {with: "--tokens 48", without: "--tokens 64", base: "--tokens 64", want: "lookup 00000030 "},
		"from":          {with: "--from 16", want: "lookup_from 0000004000000010 "},
		"explain":       {with: "--explain", want: "explain "},

		"block-size":     {with: "--block-size 16", want: `"block_size":16`},
		"engine":         {with: "--engine e", want: `"instance_id":"e"`},
		"kv-hints":       {with: "--kv-hints", want: `"kv_hints":true`},
		"last-known":     {with: "--last-known", want: `"last_known":true`},
		"loadable":       {with: "--loadable", want: `"loadable":true`},
		"model":          {with: "--model m", want: `"model":"m"`},
		"tenant":         {with: "--tenant t", want: `"tenant_id":"t"`},
		"doctor pool":    {with: "--pool q", without: "--pool p", base: "--pool p", want: `pool {"name":"q"}`},
		"holders tokens": {with: "--loadable --tokens 40", without: "--loadable", want: `"num_tokens":40`},
		"tokens-file":    {with: "--tokens-file " + files["tokens"], without: "--hashes-file -", base: "--hashes-file -", want: `"token_ids":[7,8]`},
		"lora":           {with: "--tokens-file " + files["tokens"] + " --lora l", without: "--tokens-file " + files["tokens"], base: "--hashes-file -", want: `"lora_name":"l"`},
		"lora-path":      {with: "--tokens-file " + files["tokens"] + " --lora l --lora-path /l", without: "--tokens-file " + files["tokens"] + " --lora l", base: "--hashes-file -", want: `"lora_path":"/l"`},
		"salt":           {with: "--tokens-file " + files["tokens"] + " --salt s", without: "--tokens-file " + files["tokens"], base: "--hashes-file -", want: `"cache_salt":"s"`},
	}
}

// Every flag of every command that asks a server has an effect: it changes what is sent, or what is printed of the answer.
func TestFlagsAreSent(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{}
	for name, text := range map[string]string{
		"token": strings.Repeat("the-token", 4), "hashes": strings.Repeat("cd", 32), "tokens": "7 8",
	} {
		files[name] = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(files[name], []byte(text+"\n"), 0o600))
	}
	ca := certtest.NewCA("ca")
	files["ca"] = ca.WriteFile(filepath.Join(dir, "ca.crt"))
	files["crt"], files["key"] = certtest.WriteFiles(dir, "engine", ca.Leaf("engine.example"))
	plain := fakeserver.Start(t, fakeserver.Config{})
	secure := fakeserver.Start(t, fakeserver.Config{TLS: &tls.Config{
		Certificates: []tls.Certificate{ca.Leaf("127.0.0.1", "other.example")}, ClientAuth: tls.RequestClientCert,
	}})
	own := map[string]string{ // arguments that the commands need
		"lookup": "--tokens 64 --hashes-file -", "store": "--hashes-file -", "evict": "--hashes-file -", "reset": "--yes", "ping": "", "stat": "",
		"pools": "", "holders": "--hashes-file -", "router": "", "doctor": "--pool p",
	}
	doctors := []string{ // flags of doctor that no server is asked by
		"tokens", "hashes-file", "config", "listen", "loops", "block-size", "vllm", "backend",
	}
	rows, used := flagRows(files), map[string]bool{}
	for _, cmd := range newRootCmd().Commands() {
		if cmd.Flags().Lookup("connect") == nil || !cmd.Runnable() {
			continue
		}
		needs, ok := own[cmd.Name()]
		require.True(t, ok, "what does %s need?", cmd.Name())
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "connect" || f.Name == "help" { // each row connects to an address of its own
				return
			}
			if cmd.Name() == "doctor" && slices.Contains(doctors, f.Name) {
				return
			}
			name := cmd.Name() + " " + f.Name
			row, ok := rows[name]
			if !ok {
				name = f.Name
				row, ok = rows[name]
			}
			require.True(t, ok, "no row says what --%s of %s changes", f.Name, cmd.Name())
			require.Contains(t, row.with+row.base, "--"+f.Name)
			used[name] = true
			run := func(args string) string {
				server := plain
				if row.secure {
					server = secure
				}
				address := server.Lookup
				if slices.Contains([]string{"holders", "router"}, cmd.Name()) {
					address = server.Router
				}
				line := strings.Fields(cmd.Name() + " --connect " + address + " " + args + " " + strings.Replace(needs, row.base, "", 1))
				got := hitline(t, strings.Repeat("ab", 32), line...)
				return fmt.Sprintf("exit %d\n%s\n%s%s", got.code, server.Sent(), got.stdout, got.stderr)
			}
			with, without := run(row.with), run(row.without)
			require.Contains(t, with, row.want, "--%s of %s", f.Name, cmd.Name())
			require.NotContains(t, without, row.want, "--%s of %s", f.Name, cmd.Name())
		})
	}
	for name := range rows {
		require.True(t, used[name], "no command has %s", name)
	}
}
