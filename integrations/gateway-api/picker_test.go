package gatewayapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/config/loader"
	datagraph "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/datalayer"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"
	extractor "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/extractor/metrics"
	metricssource "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/source/metrics"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/fairness"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/ordering"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/saturationdetector/utilization"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/usagelimits"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/requesthandling/parsers/openai"
	maxscore "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/picker"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/profile"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/kvcacheutilization"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/queuedepth"
	epp "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/scheduling"

	"github.com/hitline/hitline/internal/fakeserver"
	"github.com/hitline/hitline/router/client"
)

// registerPlugins registers what the runner registers, as far as the loader needs it for epp.yaml.
func registerPlugins() {
	for name, factory := range map[string]plugin.FactoryFunc{
		maxscore.MaxScorePickerType:                     maxscore.MaxScorePickerFactory,
		profile.SingleProfileHandlerType:                profile.SingleProfileHandlerFactory,
		queuedepth.QueueScorerType:                      queuedepth.QueueScorerFactory,
		kvcacheutilization.KvCacheUtilizationScorerType: kvcacheutilization.KvCacheUtilizationScorerFactory,
		fairness.GlobalStrictFairnessPolicyType:         fairness.GlobalStrictFairnessPolicyFactory,
		ordering.FCFSOrderingPolicyType:                 ordering.FCFSOrderingPolicyFactory,
		usagelimits.StaticUsageLimitPolicyType:          usagelimits.StaticPolicyFactory,
		metricssource.MetricsDataSourceType:             metricssource.MetricsDataSourceFactory,
		extractor.MetricsExtractorType:                  extractor.CoreMetricsExtractorFactory,
		openai.OpenAIParserType:                         openai.OpenAIParserPluginFactory,
		utilization.UtilizationDetectorType:             utilization.UtilizationDetectorFactory,
	} {
		plugin.Register(name, factory)
	}
}

// patience replaces the deadlines of the plug-ins where a test must not depend on how fast the machine is.
const patience = 30 * time.Second

// picker is what the picker's loader makes of a configuration.
type picker struct {
	scheduler *epp.Scheduler
	scorer    *scorer
	tokenizer *tokenizer
	order     []string // in which producers and consumers of data run
}

// loadPicker loads epp.yaml with parameters of this test.
func loadPicker(t *testing.T, replace ...string) (*picker, error) {
	t.Helper()
	text, err := os.ReadFile("epp.yaml")
	if err != nil {
		t.Fatal(err)
	}
	raw, _, err := loader.LoadRawConfig([]byte(strings.NewReplacer(replace...).Replace(string(text))), logr.Discard())
	if err != nil {
		return nil, err
	}
	handle := plugin.NewEppHandle(t.Context(), func() []types.NamespacedName { return nil })
	config, err := loader.InstantiateAndConfigure(raw, handle, logr.Discard())
	if err != nil {
		return nil, err
	}
	order, err := datagraph.ValidateAndOrderDataDependencies(handle.GetAllPlugins())
	if err != nil {
		return nil, err
	}
	p := &picker{scheduler: epp.NewSchedulerWithConfig(config.SchedulerConfig), order: order}
	if p.scorer, err = plugin.PluginByType[*scorer](handle, ScorerType); err != nil {
		return nil, err
	}
	if p.tokenizer, err = plugin.PluginByType[*tokenizer](handle, TokenizerType); err != nil {
		return nil, err
	}
	p.scorer.timeout, p.tokenizer.client.timeout = patience, patience
	return p, nil
}

// pods are the endpoints of the tests: two whose addresses epp.yaml names, and one that its pod names.
func pods() (endpoints []scheduling.Endpoint) {
	for i, name := range []string{"vllm-0-rank-0", "vllm-1-rank-0", "vllm-2-rank-0"} {
		endpoints = append(endpoints, scheduling.NewEndpoint(&datalayer.EndpointMetadata{
			NamespacedName: types.NamespacedName{Namespace: "default", Name: name},
			Address:        fmt.Sprintf("10.0.0.%d", 10+i), Port: "8000",
		}, datalayer.NewMetrics(), nil))
	}
	return endpoints
}

// scores returns the scores of pods, in their order.
func (p *picker) scores(t *testing.T, request *scheduling.LLMRequest) (list []float64) {
	t.Helper()
	endpoints := pods()
	scores := p.scorer.Score(t.Context(), nil, request, endpoints)
	if scores == nil {
		return nil
	}
	for _, e := range endpoints {
		list = append(list, scores[e])
	}
	return list
}

func tokenized(model string, ids []uint32) *scheduling.LLMRequest {
	return &scheduling.LLMRequest{TargetModel: model, TokenizedPrompt: &scheduling.TokenizedPrompt{TokenIDs: ids}}
}

// A prompt goes where most of it is: from the payload by the tokenizer, the scorer and a hitline that follows engines
// to the endpoint that the scheduler picks.
func TestPromptGoesWhereMostOfItIs(t *testing.T) {
	ids := tokenIDs(16 * 8)
	hashes := blockHashes(t, ids)
	engines := map[string]*engine{
		"engine-0": startEngine(t), "engine-1": startEngine(t), "default/vllm-2-rank-0": startEngine(t),
	}
	engines["engine-0"].store(t, hashes[:1]...)
	engines["engine-1"].store(t, hashes[:4]...)
	engines["default/vllm-2-rank-0"].store(t, hashes[:2]...)
	server := startServer(t, engines)
	var asked int
	vllm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_ = json.NewEncoder(w).Encode(map[string]any{"count": len(ids), "tokens": ids})
	}))
	defer vllm.Close()
	p, err := loadPicker(t, "http://hitline:8557", server.router, "http://vllm:8000", vllm.URL)
	if err != nil {
		t.Fatal(err)
	}
	first, second := p.tokenizer.name.String(), p.scorer.name.String()
	if at := slices.Index(p.order, first); at < 0 || at > slices.Index(p.order, second) {
		t.Errorf("the picker orders %v, want the tokenizer before the scorer", p.order)
	}

	prepare := func() *scheduling.LLMRequest {
		request := chat(t, `{"model": "llama", "messages": [{"role": "user", "content": "Hello"}]}`)
		if err := p.tokenizer.PrepareRequestData(t.Context(), request, pods()); err != nil {
			t.Fatal(err)
		}
		return request
	}
	want := []float64{16. / 128, 64. / 128, 32. / 128}
	eventually(t, "all events are applied", func() bool { return slices.Equal(p.scores(t, prepare()), want) })
	if asked != 1 {
		t.Errorf("the engine was asked %d times for the tokens of one prompt, want 1", asked)
	}
	result, err := p.scheduler.Schedule(t.Context(), prepare(), pods())
	if err != nil {
		t.Fatal(err)
	}
	picked := result.ProfileResults["default"].TargetEndpoints[0].GetMetadata().NamespacedName.Name
	if picked != "vllm-1-rank-0" {
		t.Errorf("the scheduler picked %s, want vllm-1-rank-0", picked)
	}

	// The store has six blocks: each beyond those that an endpoint has counts half.
	hitline(t, strings.Join(hashes[:6], "\n"), "store", "--connect", server.address, "--hashes-file", "-")
	if got, want := p.scores(t, prepare()), []float64{56. / 128, 80. / 128, 64. / 128}; !slices.Equal(got, want) {
		t.Errorf("with the store the scores are %v, want %v", got, want)
	}

	// An engine whose events are missing scores nothing, or what it had.
	engines["engine-1"].end()
	eventually(t, "engine-1 is stale", func() bool { return p.scores(t, prepare())[1] == 0 })
	p.scorer.parameters.LastKnown = true
	if got := p.scores(t, prepare())[1]; got != 80./128 {
		t.Errorf("with lastKnown a stale engine scores %v, want %v", got, 80./128)
	}
}

// An engine is stale if one of its ranks is. The prefixes of the others still count, and of a rank its own reasons alone.
func TestOtherRanksOfAStaleEngine(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"instances": {"engine-0": {"longest_matched": 32, "dp": {"1": 32}}}, "loadable_tokens": 48,
			"unsure": {"engine-0": ["stale"], "engine-1": ["stale"]},
			"unsure_ranks": {"engine-0": {"0": ["stale"]}, "engine-1": {"0": ["stale"]}}}`))
	}))
	defer server.Close()
	for ranks, want := range map[[2]string][]float64{
		{"", ""}:                   {40. / 64, 0, 24. / 64},
		{", rank: 0", ", rank: 0"}: {0, 0, 24. / 64},
		{", rank: 1", ", rank: 1"}: {40. / 64, 24. / 64, 24. / 64},
	} {
		p, err := loadPicker(t, "http://hitline:8557", server.URL, "{engine: engine-0}", "{engine: engine-0"+ranks[0]+"}",
			"{engine: engine-1}", "{engine: engine-1"+ranks[1]+"}")
		if err != nil {
			t.Fatal(err)
		}
		p.scorer.parameters.StoreWeight = 0.5
		if got := p.scores(t, tokenized("llama", tokenIDs(64))); !slices.Equal(got, want) {
			t.Errorf("of the ranks %q the scores are %v, want %v", ranks, got, want)
		}
	}
}

// What a later hitline adds to its answers changes no score.
func TestGrownAnswers(t *testing.T) {
	fakeserver.EachGrowth(t, func(t *testing.T, s *fakeserver.Server) string {
		p, err := loadPicker(t, "http://hitline:8557", s.Router)
		if err != nil {
			t.Fatal(err)
		}
		scores := p.scores(t, tokenized("llama", tokenIDs(64)))
		if want := []float64{40. / 64, 32. / 64, 24. / 64}; !slices.Equal(scores, want) {
			t.Errorf("the scores are %v, want %v", scores, want)
		}
		return fmt.Sprint(scores)
	})
}

// Hashes depend on the adapter and the salt of a request, so hitline is asked with them.
func TestAdaptersAndSalts(t *testing.T) {
	ids := tokenIDs(16 * 4)
	e := startEngine(t)
	e.store(t, blockHashes(t, ids, "--lora", "sql", "--lora-path", "/sql")...)
	e.store(t, blockHashes(t, ids, "--salt", "mine")[:2]...)
	server := startServer(t, map[string]*engine{"engine-0": e})
	p, err := loadPicker(t, "http://hitline:8557", server.router, "storeWeight: 0.5", "adapters: {sql: /sql}")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the adapter's blocks count", func() bool {
		return slices.Equal(p.scores(t, tokenized("sql", ids)), []float64{1, 0, 0})
	})
	salted := tokenized("llama", ids)
	salted.Body = &scheduling.LLMRequestBody{Completions: &scheduling.CompletionsRequest{CacheSalt: "mine"}}
	eventually(t, "salted blocks count", func() bool { return slices.Equal(p.scores(t, salted), []float64{0.5, 0, 0}) })
	if got := p.scores(t, tokenized("llama", ids)); !slices.Equal(got, []float64{0, 0, 0}) {
		t.Errorf("without adapter and salt the scores are %v, want 0", got)
	}
}

// chat returns a request as the picker's parser makes it of a body.
func chat(t *testing.T, body string) *scheduling.LLMRequest {
	t.Helper()
	return parsed(t, "/v1/chat/completions", body)
}

func parsed(t *testing.T, path, body string) *scheduling.LLMRequest {
	t.Helper()
	parsed, err := openai.NewOpenAIParser().ParseRequest(t.Context(), []byte(body), map[string]string{":path": path})
	if err != nil {
		t.Fatal(err)
	}
	return &scheduling.LLMRequest{TargetModel: "llama", Body: parsed}
}

// What /tokenize is asked is what the token ids depend on, as the client sent it.
func TestTokenizeBody(t *testing.T) {
	const messages = `[{"role": "user", "content": [{"type": "text", "text": "Hi", "cache": true}]}]`
	const image = `[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]`
	const chats, completions = "/v1/chat/completions", "/v1/completions"
	for name, c := range map[string]struct{ path, body, want string }{
		"chat": {
			chats, `{"model": "m", "messages": ` + messages + `, "temperature": 1, "tools": [{"type": "x"}]}`,
			`{"model": "m", "messages": ` + messages + `, "tools": [{"type": "x"}]}`,
		},
		"completion": {completions, `{"model": "m", "prompt": "Hi", "max_tokens": 3}`, `{"model": "m", "prompt": "Hi"}`},
		"one of a list": {
			completions, `{"prompt": ["Hi"], "add_special_tokens": false}`, `{"prompt": "Hi", "add_special_tokens": false}`,
		},
		"for the template": {
			chats, `{"messages": ` + messages + `, "chat_template_kwargs": {"x": 1}, "reasoning_effort": "low", "documents": null}`,
			`{"messages": ` + messages + `, "chat_template_kwargs": {"x": 1, "reasoning_effort": "low"}}`,
		},
		"two prompts": {completions, `{"prompt": ["Hi", "Ho"]}`, ``},
		"an image":    {chats, `{"messages": ` + image + `}`, ``},
		"responses":   {"/v1/responses", `{"input": "Hi"}`, ``},
		"too long":    {completions, `{"prompt": "` + strings.Repeat("x", maxTokenizerBody) + `"}`, ``},
	} {
		got, err := tokenizeBody(parsed(t, c.path, c.body).Body)
		if err != nil || !sameJSON(t, got, c.want) {
			t.Errorf("%s: /tokenize is asked %.100s, %v; want %s", name, got, err, c.want)
		}
	}
}

func sameJSON(t *testing.T, got []byte, want string) bool {
	t.Helper()
	if len(got) == 0 || want == "" {
		return len(got) == len(want)
	}
	var a, b any
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// What an engine or hitline answers late, wrongly or not at all costs the scores, and nothing else.
func TestNoScores(t *testing.T) {
	released := make(chan struct{})
	var reply atomic.Value // of string; empty: none
	stub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reply.Load() == "" {
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, reply.Load().(string))
	}))
	defer stub.Close()
	defer close(released)
	p, err := loadPicker(t, "http://hitline:8557", stub.URL, "http://vllm:8000", stub.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		reply   string
		timeout time.Duration
	}{
		"late": {"", scorerTimeout}, "no JSON": {"x", patience}, "another form": {`{"instances": 3, "tokens": 3}`, patience},
		"too long": {`{"instances": {}}` + strings.Repeat(" ", 2*maxReply), patience},
	} {
		reply.Store(c.reply)
		p.scorer.timeout, p.tokenizer.client.timeout = c.timeout, c.timeout
		if got := p.scores(t, tokenized("llama", tokenIDs(16))); got != nil {
			t.Errorf("%s: the scores are %v, want none", name, got)
		}
		request := chat(t, `{"model": "llama", "messages": [{"role": "user", "content": "Hello"}]}`)
		if err := p.tokenizer.PrepareRequestData(t.Context(), request, nil); err != nil || request.TokenizedPrompt != nil {
			t.Errorf("%s: the tokenizer returned %v and %v, want neither", name, request.TokenizedPrompt, err)
		}
		if result, err := p.scheduler.Schedule(t.Context(), request, pods()); err != nil || result == nil {
			t.Errorf("%s: the scheduler returned %v, %v", name, result, err)
		}
	}

	// Others may have tokenized the prompt, and the picker may wait no longer.
	reply.Store(`{"tokens": [1, 2]}`)
	p.tokenizer.client.timeout = patience
	request := chat(t, `{"model": "llama", "messages": [{"role": "user", "content": "Hello"}]}`)
	if _ = p.tokenizer.PrepareRequestData(t.Context(), request, nil); request.TokenizedPrompt == nil {
		t.Fatal("a good answer set no tokens")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	request.TokenizedPrompt = nil
	if _ = p.tokenizer.PrepareRequestData(ended, request, nil); request.TokenizedPrompt != nil {
		t.Error("the tokenizer changed a request that the picker has gone on with")
	}
	request.TokenizedPrompt = &scheduling.TokenizedPrompt{TokenIDs: []uint32{9}}
	if _ = p.tokenizer.PrepareRequestData(t.Context(), request, nil); request.TokenizedPrompt.TokenIDs[0] != 9 {
		t.Error("the tokenizer replaced the tokens of another")
	}
}

// A rank counts alone if the configuration says so, and no answer makes a score leave 0 to 1.
func TestRanksAndBounds(t *testing.T) {
	var body map[string]any
	stub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		body = nil
		_ = json.NewDecoder(r.Body).Decode(&body)
		_, _ = w.Write([]byte(`{"instances": {"engine-0": {"longest_matched": 32, "dp": {"0": 16, "1": 32}},
			"engine-1": {"longest_matched": 1000}, "default/vllm-2-rank-0": {"longest_matched": 0}}, "loadable_tokens": 20, "loadable_unknown": "why"}`))
	}))
	defer stub.Close()
	token := t.TempDir() + "/token"
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fields := "\n      tokenFile: " + token + "\n      model: llama\n      tenant: default"
	p, err := loadPicker(t, "http://hitline:8557", stub.URL+fields, "{engine: engine-0}", "{engine: engine-0, rank: 0}")
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{18. / 32, 1, 10. / 32}
	if got := p.scores(t, tokenized("llama", tokenIDs(32))); !slices.Equal(got, want) {
		t.Errorf("the scores are %v, want %v", got, want)
	}
	asked := slices.Sorted(maps.Keys(body))
	if want := []string{"loadable", "model", "tenant_id", "token_ids"}; !slices.Equal(asked, want) {
		t.Errorf("hitline was asked with %v, want %v", asked, want)
	}
	if p.scores(t, tokenized("llama", nil)) != nil || p.scores(t, &scheduling.LLMRequest{}) != nil {
		t.Error("a prompt without tokens has scores")
	}
}

// What a configuration must not have is an error that names it.
func TestBadConfiguration(t *testing.T) {
	for _, c := range []struct{ old, replacement, want string }{
		{"storeWeight: 0.5", "storeWeigth: 0.5", "storeWeigth"},
		{"storeWeight: 0.5", "storeWeight: 1.5", "must be 0 to 1"},
		{"storeWeight: 0.5", "timeout: 2s", "must be 1ms to 1s"},
		{"http://hitline:8557", "hitline:8557", "url: the address must be http://host:port"},
		{"http://vllm:8000/tokenize", "http://vllm:8000/tokenize\n      timeout: 101ms", "must be 1ms to 100ms"},
		{"storeWeight: 0.5", `timeout: "5"`, `timeout is "5"`},
		{"http://hitline:8557", "http://me:secret@hitline:8557", "url: the address must be http://host:port"},
		{"http://vllm:8000/tokenize", "vllm:8000", "url must be as http://HOST:PORT"},
		{`"10.0.0.10:8000"`, "vllm:8000", "must be ADDRESS:PORT"},
		{"{engine: engine-1}", "{engine: engine-1, rank: -1}", "has rank -1"},
		{"{engine: engine-1}", "{rank: 1}", "has no engine"},
	} {
		if _, err := loadPicker(t, c.old, c.replacement); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.replacement, err, c.want)
		}
	}
}

// An address of IPv6 is the same however it is written.
func TestEndpointsOfIPv6(t *testing.T) {
	p, err := loadPicker(t, `"10.0.0.10:8000"`, `"[FD00:0::1]:8000"`)
	if err != nil {
		t.Fatal(err)
	}
	engine, rank := p.scorer.parameters.source(&datalayer.EndpointMetadata{Address: "fd00::1", Port: "8000"})
	if engine != "engine-0" || rank != client.AllRanks {
		t.Errorf("the endpoint is rank %d of %q, want all of engine-0", rank, engine)
	}
}

// The cache keeps what was used last within its bytes.
func TestCacheIsBounded(t *testing.T) {
	c := tokenCache{maxBytes: 3 * (entryBytes + 4*100)}
	for i := range 4 {
		c.put(promptKey{byte(i)}, make([]uint32, 100))
		c.get(promptKey{0}) // used, so it stays
	}
	c.put(promptKey{9}, make([]uint32, 1000)) // does not fit
	var kept []int
	for i := range 10 {
		if c.get(promptKey{byte(i)}) != nil {
			kept = append(kept, i)
		}
	}
	if !slices.Equal(kept, []int{0, 2, 3}) || c.bytes > c.maxBytes {
		t.Errorf("it keeps %v in %d bytes, want 0, 2 and 3 in at most %d", kept, c.bytes, c.maxBytes)
	}
}
