package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/internal/storetest"
)

// What is wrong with the sources of a running router is a problem each, with what to do.
func TestDoctorOfRouter(t *testing.T) {
	other, dead := eventstest.New(t), closedAddress(t)
	for n := range 2 {
		event := eventstest.Stored(nil, []byte{1, 2, 3, 4, 5, 6, 7, byte(n)})
		event["token_ids"], event["kv_cache_spec_kind"] = make([]any, 16), "chunked_local_attention"
		event["token_ids"].([]any)[0] = n
		for i := 1; i < 16; i++ {
			event["token_ids"].([]any)[i] = i
		}
		other.Publish(false, event)
	}
	config := "router: {models: [{name: m, block_size: 16, hash: {type: vllm}}], sources: [" +
		"{model: m, instance_id: a, endpoint: \"" + other.Endpoint + "\", replay_endpoint: \"" + other.Replay + "\"}, " +
		"{model: m, instance_id: b, endpoint: \"tcp://" + dead + "\"}], listen: "
	s := startServe(t, config+"\"127.0.0.1:0\"}\n")
	var d doctorResult
	storetest.Eventually(t, "the first source is live", func() bool {
		d = runDoctor(t, config+s.router+"}\n")
		return d.Router.Differ == 1 && d.Router.Stale == 1
	})
	assert.Equal(t, &routerReport{Address: "http://" + s.router, Sources: 2, Stale: 1, Unchecked: 1, Differ: 1}, d.Router)
	assert.Equal(t, exitFailed, d.Exit)
	problems := strings.Join(d.Problems, "\n")
	for _, want := range []string{
		`router: group 0 of model "m" is "chunked_local_attention", of which events do not tell enough: it counts as full_attention; configure groups`,
		`router: rank 0 of engine "a" of model "m": no known way to hash fits: the engine's PYTHONHASHSEED is probably another`,
		`router: rank 0 of engine "b" of model "m" is stale, so it counts for nothing: `,
	} {
		assert.Contains(t, problems, want)
	}
	assert.Len(t, d.Problems, 3)
	assert.Contains(t, strings.Join(d.Notes, "\n"), "router: sources whose hashes are not known to agree or differ: 1; no first block of a prompt came with its tokens, one alone did and differs, or ")
	text := hitline(t, "", "doctor", "--config", configFile(t, config+s.router+"}\n"))
	assert.NotContains(t, text.stdout, "memory", "no pool is configured")
	assert.NotContains(t, text.stdout, "@tp_rank")
	assert.Contains(t, text.stdout, "router   http://"+s.router+": sources 2, stale 1, incomplete 0, unchecked 1, differ 1\n")
}

// Without a server, or without its permission, doctor says so.
func TestDoctorOfRouterThatIsAway(t *testing.T) {
	d := runDoctor(t, "router: {models: [{name: m, block_size: 16}], listen: \"0.0.0.0:"+strings.TrimPrefix(closedAddress(t), "127.0.0.1:")+"\"}\n")
	assert.Equal(t, exitDone, d.Exit)
	assert.Contains(t, strings.Join(d.Notes, "\n"), "router: no server answers, so what it follows is not known: no server at http://127.0.0.1:")

	tokens := writeToken(t, "tokens: [{name: a, token: "+theToken+", allow: [holders]}]")
	config := "router:\n  models: [{name: m, block_size: 16}]\n  listen: {allow: [ping], tokens: " + tokens + ", address: "
	s := startServe(t, config+"\"127.0.0.1:0\"}\n")
	d = runDoctor(t, config+s.router+"}\n")
	assert.Equal(t, exitFailed, d.Exit)
	require.Len(t, d.Problems, 1)
	assert.Contains(t, d.Problems[0], "give the token of a credential that may ask for holders, by --token-file")
	d = runDoctor(t, config+s.router+"}\n", "--token-file", writeToken(t, theToken))
	assert.Equal(t, exitDone, d.Exit)
	assert.Contains(t, strings.Join(d.Notes, "\n"), "router: it follows no engine")
}

func TestHTTPURL(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:1": "http://127.0.0.1:1", "tls://a.example:2": "https://a.example:2", "0.0.0.0:3": "http://127.0.0.1:3", "tcp://[::]:4": "http://127.0.0.1:4",
		":5": "http://127.0.0.1:5", "[::1]:6": "http://[::1]:6",
	} {
		got, err := httpURL(listen)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}
