package picture

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const latency = `{"vllm":"0.32.0","row":"latency","ok":true,"rows":[
{"measured":"arrivals","mode":"none","p99_ms":1246.45,"p99_ms_rounds":[1238,1255],"paused_ms":5267.2,"paused_ms_rounds":[5214,5287]},
{"measured":"arrivals","mode":"own","p99_ms":25.9,"p99_ms_rounds":[24.9,26.2],"paused_ms":43.8,"paused_ms_rounds":[36.7,49]},
{"measured":"arrivals","mode":"hitline","p99_ms":26.2,"p99_ms_rounds":[25,26.9],"paused_ms":41.3,"paused_ms_rounds":[38.6,42.5]},
{"measured":"blocked head","mode":"own","p50_ms":10.3,"p50_ms_rounds":[9.1,10.7]},
{"measured":"blocked head","mode":"a < b","p50_ms":4.1}]}
`

func TestStreams(t *testing.T) {
	got, err := Streams([]byte(`{"vllm":"0.28.0","row":"auto","ok":true}` + "\n" + latency))
	require.NoError(t, err)
	var parsed struct{}
	require.NoError(t, xml.Unmarshal(got, &parsed), "well formed")
	text := string(got)
	for _, want := range []string{"vLLM 0.32.0", ">no store<", ">5267.2, cut off<", "vLLM&#39;s own lookup", ">a &lt; b<", `<rect class="ours"`} {
		assert.Contains(t, text, want)
	}
	assert.Equal(t, 8, strings.Count(text, `class="value"`), "a bar for each mode of each panel")
	assert.Contains(t, text, `width="400.0"`, "what is far longer than all others is cut off")

	again, err := Streams([]byte(latency))
	require.NoError(t, err)
	assert.Equal(t, got, again, "equal rows give equal bytes")
}

func TestStreamsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "no row latency; give the file of make e2e",
		"{":                        "no lines of JSON: ",
		`{"row":"auto","ok":true}`: "no row latency",
		latency + latency:          "rows latency of vLLM 0.32.0 and of 0.32.0; keep the line of one",
		strings.Replace(latency, "true", "false", 1):           "the row latency of vLLM 0.32.0 failed",
		strings.ReplaceAll(latency, "blocked head", "another"): "has no blocked head; measure it with make e2e ONLY=latency",
	} {
		_, err := Streams([]byte(text))
		require.ErrorIs(t, err, ErrInput)
		assert.ErrorContains(t, err, want)
	}
}
