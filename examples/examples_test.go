// Package examples_test runs the examples.
package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
	"github.com/hitline/hitline/router/httpapi"
)

var llama = router.ModelKey{Name: "llama"}

// prompt returns token ids that begin as those of the same name do.
func prompt(name byte, tokens int) (ids []int64) {
	for i := range tokens {
		ids = append(ids, int64(name)*1000+int64(i))
	}
	return ids
}

func asJSON(ids []int64) string { return strings.ReplaceAll(fmt.Sprint(ids), " ", ",") }

// hashesOf returns the hashes of a prompt's blocks.
func hashesOf(t *testing.T, ids []int64) (list [][]byte) {
	t.Helper()
	hasher, err := blockhash.NewVLLM(blockhash.VLLMConfig{Release: "0.33.0", BlockSize: 16})
	require.NoError(t, err)
	joined, err := hasher.AppendHashes(nil, ids, nil)
	require.NoError(t, err)
	for _, hash := range coordinator.NewHashes(joined, hasher.HashLen()).All() {
		list = append(list, hash)
	}
	return list
}

// start starts a program until the test ends, or stop is called. It returns what the program prints.
func start(t *testing.T, stdin io.Reader, name string, args ...string) (out *bufio.Scanner, stop func() (stderr string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH=../clients/python", "PYTHONDONTWRITEBYTECODE=1", "HITLINE_TOKEN_FILE=")
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = stdin, &said
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	stop = sync.OnceValue(func() string {
		cancel()
		_ = cmd.Wait() // it is killed
		return said.String()
	})
	t.Cleanup(func() {
		if stderr := stop(); t.Failed() {
			t.Logf("%s: %s", name, stderr)
		}
	})
	return bufio.NewScanner(pipe), stop
}

// routers returns the commands of the routers in Go and in Python, with hitline's address left empty.
func routers(t *testing.T) map[string][]string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "router")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./router").CombinedOutput()
	require.NoError(t, err, "%s", out)
	all := map[string][]string{"Go": {binary, "-hitline", "", "-timeout", "1m", "-listen", "127.0.0.1:0"}}
	if python, err := exec.LookPath("python3"); err == nil {
		all["Python"] = []string{python, "router.py", "--hitline", "", "--timeout", "60", "--listen", "127.0.0.1:0"}
	} else if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	return all
}

// engines are three that say who they are. A prompt whose first token is 9000 is held until busy is closed.
func engines(t *testing.T, busy chan struct{}, began chan string) (args []string) {
	for i := range 3 {
		name := fmt.Sprint("engine-", i)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), "[9000,") {
				began <- name
				<-busy
			}
			_, _ = io.WriteString(w, name)
		}))
		t.Cleanup(server.Close)
		args = append(args, name+"="+server.URL)
	}
	return args
}

// A router sends prompts where most of them is, against load, where they went before, and by load alone if it must.
func TestRouters(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts programs")
	}
	for name, command := range routers(t) {
		t.Run(name, func(t *testing.T) {
			pool, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{VLLM: "0.33.0", HashBlockSize: 16}})
			require.NoError(t, err)
			models := []router.Model{
				{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}, Pool: pool, Hash: &router.Hashing{Release: "0.33.0"}},
				{ModelKey: router.ModelKey{Name: "alpaca"}, Fleet: fleet.Config{BlockSize: 16}, Hash: &router.Hashing{Release: "0.33.0"}},
			}
			service, err := router.New(router.Config{Models: models})
			require.NoError(t, err)
			t.Cleanup(service.Close)
			publisher := eventstest.New(t)
			publisher.Publish(false, eventstest.Stored(nil, hashesOf(t, prompt('a', 320))...))
			poolless := eventstest.New(t)
			poolless.Publish(false, eventstest.Stored(nil, hashesOf(t, prompt('a', 160))...))
			for _, source := range []router.Source{
				{Model: "llama", Engine: "engine-1", Endpoint: publisher.Endpoint, Replay: publisher.Replay},
				{Model: "llama", Engine: "engine-2", Endpoint: "tcp://127.0.0.1:1"}, // is away
				{Model: "alpaca", Engine: "engine-2", Endpoint: poolless.Endpoint, Replay: poolless.Replay},
			} {
				require.NoError(t, service.Add(source))
			}
			lookuptest.Eventually(t, "events are applied", func() (all bool) {
				var blocks int64
				for _, source := range service.Status() {
					blocks += source.Blocks
				}
				return blocks == 30
			})
			hitline := httptest.NewServer(httpapi.New(httpapi.Config{Service: service, Local: true}))
			t.Cleanup(hitline.Close)

			busy, began := make(chan struct{}), make(chan string, 2)
			release := sync.OnceFunc(func() { close(busy) })
			command[slices.Index(command, "")] = hitline.URL
			out, stop := start(t, nil, command[0], append(command[1:], engines(t, busy, began)...)...)
			t.Cleanup(release) // before the engines close
			require.True(t, out.Scan())
			address := strings.TrimPrefix(out.Text(), "listening on ")
			send := func(body string) string {
				url := address + "/v1/completions"
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
				require.NoError(t, err)
				response, err := (&http.Client{Timeout: lookuptest.Patience}).Do(request)
				require.NoError(t, err)
				defer response.Body.Close()
				text, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				return string(text)
			}
			ask := func(ids []int64) string { return send(`{"model": "llama", "prompt": ` + asJSON(ids) + `}`) }

			require.Equal(t, "engine-1", ask(prompt('a', 330)), "it has the prompt")
			require.Equal(t, "engine-2", send(`{"model": "alpaca", "prompt": `+asJSON(prompt('a', 330))+`}`), "of a model without a pool")
			require.Equal(t, "engine-0", ask(prompt('b', 320)), "nobody has it")
			done := make(chan string, 2)
			hold := func(ids []int64) string { // keeps an engine busy
				go func() { done <- ask(ids) }()
				select {
				case name := <-began:
					return name
				case name := <-done:
					return "not held: " + name
				case <-time.After(lookuptest.Patience):
					return "no request"
				}
			}
			require.Equal(t, "engine-0", hold(prompt(9, 3200)))
			require.Equal(t, "engine-1", ask(prompt('d', 320)), "another engine is less busy")
			require.Equal(t, "engine-1", hold(prompt(9, 100)))
			for i, hash := range hashesOf(t, prompt('e', 320)) {
				require.NoError(t, pool.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(hash, len(hash))), i)
			}
			require.Equal(t, "engine-1", ask(prompt('e', 320)), "what the store can load counts for no stale engine")
			release()
			require.ElementsMatch(t, []string{"engine-0", "engine-1"}, []string{<-done, <-done})
			require.Equal(t, "engine-1", ask(prompt('d', 330)), "where it went before")
			require.Contains(t, send(`{"prompt": "a text"}`), "engine-")
			hitline.Close()
			require.Contains(t, ask(prompt('f', 320)), "engine-", "hitline is away")
			require.Equal(t, 1, strings.Count(stop(), `hitline follows no engine "engine-0"; it has engine-1, engine-2`))
		})
	}
}

// A program with hitline inside answers lookups, and who has most of a prompt.
func TestEmbed(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts a program")
	}
	binary := filepath.Join(t.TempDir(), "embed")
	text, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./embed").CombinedOutput()
	require.NoError(t, err, "%s", text)
	ids := prompt('a', 70)
	hashes := hashesOf(t, ids)
	publisher := eventstest.New(t)
	publisher.Publish(false, eventstest.Stored(nil, hashes[:2]...))
	in, prompts := io.Pipe()
	out, _ := start(t, in, binary, "-listen", "tcp://127.0.0.1:0", "engine-0="+publisher.Endpoint+","+publisher.Replay)
	t.Cleanup(func() { _ = prompts.Close() })
	require.True(t, out.Scan())
	c, err := client.Dial(t.Context(), strings.TrimPrefix(out.Text(), "lookups at "))
	require.NoError(t, err)
	defer c.Close()
	stored := coordinator.NewHashes(bytes.Join(hashes[:3], nil), 32)
	require.NoError(t, c.Store(t.Context(), coordinator.GroupRank{}, stored))

	ask := func(line string) string {
		_, err := io.WriteString(prompts, line+"\n")
		require.NoError(t, err)
		require.True(t, out.Scan())
		return out.Text()
	}
	line := strings.Trim(fmt.Sprint(ids), "[]")
	const has = "engine-0 has %d of 70 tokens, the store can load 48; unsure: [engine-0 [unchecked]]"
	lookuptest.Eventually(t, "events are applied", func() bool { return ask(line) == fmt.Sprintf(has, 32) })
	require.Equal(t, fmt.Sprintf(has, 64), ask(line), "the prompt went there")
	require.Equal(t, `"x" is no token id`, ask("1 x"))
	require.NoError(t, prompts.Close())
	require.False(t, out.Scan(), "it ends with its input")
}
