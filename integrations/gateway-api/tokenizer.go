package gatewayapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/requestcontrol"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"
)

const (
	// maxTokenizerTimeout is also the default: the picker gives all producers of data 400 ms together.
	maxTokenizerTimeout = 100 * time.Millisecond
	maxTokenizerBody    = 4 << 20  // bytes; tokenizing more takes longer than the timeout
	maxCacheBytes       = 64 << 20 // of token ids that are kept
)

// tokenizerParameters are those of the tokenizer in an EndpointPickerConfig.
type tokenizerParameters struct {
	URL       string `json:"url"` // of an engine's /tokenize
	TokenFile string `json:"tokenFile"`
	Timeout   string `json:"timeout"`
}

// tokenizer asks an engine for the token ids of prompts, and keeps them. Safe for concurrent use.
type tokenizer struct {
	name     plugin.TypedName
	client   *engineClient
	cache    tokenCache
	failures failures
}

var _ requestcontrol.PrepareDataPlugin = (*tokenizer)(nil)

func newTokenizer(name string, parameters json.RawMessage, _ plugin.Handle) (plugin.Plugin, error) {
	var p tokenizerParameters
	if err := decode(parameters, &p); err != nil {
		return nil, err
	}
	timeout, err := parseTimeout(p.Timeout, maxTokenizerTimeout, maxTokenizerTimeout)
	if err != nil {
		return nil, err
	}
	client, err := newEngineClient(p.URL, p.TokenFile, timeout)
	if err != nil {
		return nil, err
	}
	t := &tokenizer{name: plugin.TypedName{Type: TokenizerType, Name: name}, client: client}
	t.cache.maxBytes = maxCacheBytes
	return t, nil
}

// TypedName returns the type and the name of the plug-in.
func (t *tokenizer) TypedName() plugin.TypedName { return t.name }

// Produces says that the plug-in makes token ids.
func (t *tokenizer) Produces() map[string]any {
	return map[string]any{tokensKey: (*scheduling.TokenizedPrompt)(nil)}
}

// Consumes says that the plug-in needs nothing of others.
func (t *tokenizer) Consumes() map[string]any { return nil }

// PrepareRequestData sets the request's TokenizedPrompt if it has none, by the engine or from the cache. Its token ids
// are shared with other requests: do not change them. It returns no error, which would keep the picker from asking its
// other producers: a prompt without token ids gets no scores.
func (t *tokenizer) PrepareRequestData(
	ctx context.Context, request *scheduling.LLMRequest, _ []scheduling.Endpoint,
) error {
	if request.TokenizedPrompt != nil {
		return nil
	}
	body, err := tokenizeBody(request.Body)
	if err != nil {
		t.failures.report(ctx, t.name, err)
	}
	if body == nil {
		return nil
	}
	tokens, err := t.tokens(ctx, body)
	if err != nil {
		t.failures.report(ctx, t.name, err)
		return nil
	}
	if ctx.Err() == nil { // otherwise the picker waits no longer, and others read the request
		request.TokenizedPrompt = &scheduling.TokenizedPrompt{TokenIDs: tokens}
	}
	return nil
}

// tokens returns the token ids for a body of /tokenize.
func (t *tokenizer) tokens(ctx context.Context, body []byte) ([]uint32, error) {
	key := sha256.Sum256(body)
	if tokens := t.cache.get(key); tokens != nil {
		return tokens, nil
	}
	reply, err := t.client.post(ctx, body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(reply, &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", t.client.url, err)
	}
	if len(answer.Tokens) == 0 {
		return nil, errors.New(t.client.url + ": an answer without tokens")
	}
	t.cache.put(key, answer.Tokens)
	return answer.Tokens, nil
}

// tokenFields are those of a payload that its token ids depend on. Others, such as a temperature, would make equal
// prompts differ in the cache.
var tokenFields = []string{
	"model", "prompt", "messages", "tools", "add_generation_prompt", "continue_final_message", "add_special_tokens",
	"chat_template", "chat_template_kwargs",
}

// tokenizeBody returns what /tokenize is asked, nil for what it cannot answer: other APIs, several prompts, and
// images, whose tokens the engine alone knows.
func tokenizeBody(request *scheduling.LLMRequestBody) ([]byte, error) {
	if request == nil {
		return nil, nil
	}
	payload, ok := request.Payload.(scheduling.PayloadMap)
	if !ok {
		return nil, nil
	}
	fields := map[string]any{}
	for _, name := range tokenFields {
		if value, ok := payload[name]; ok {
			fields[name] = value
		}
	}
	switch {
	case request.ChatCompletions != nil && isText(request.ChatCompletions.Messages):
		delete(fields, "prompt")
		addTemplateFields(fields, payload)
	case request.Completions != nil && request.Completions.Prompt.Raw != "":
		delete(fields, "messages")
	case request.Completions != nil && len(request.Completions.Prompt.Strings) == 1:
		delete(fields, "messages")
		fields["prompt"] = request.Completions.Prompt.Strings[0]
	default:
		return nil, nil
	}
	body, err := json.Marshal(fields)
	if len(body) > maxTokenizerBody {
		return nil, nil
	}
	return body, err
}

// addTemplateFields adds what an engine gives to the template of a chat besides chat_template_kwargs: /tokenize of vLLM
// takes it there alone.
func addTemplateFields(fields map[string]any, payload scheduling.PayloadMap) {
	given, _ := fields["chat_template_kwargs"].(map[string]any) // of the request, which goes on to the engine
	merged := maps.Clone(given)
	for _, name := range []string{"documents", "reasoning_effort"} {
		if payload[name] == nil {
			continue
		}
		if merged == nil {
			merged = map[string]any{}
		}
		merged[name] = payload[name]
		fields["chat_template_kwargs"] = merged
	}
}

// isText says whether messages have text alone.
func isText(messages []scheduling.Message) bool {
	for _, message := range messages {
		for _, part := range message.Content.Structured {
			if part.Type != "text" {
				return false
			}
		}
	}
	return true
}
