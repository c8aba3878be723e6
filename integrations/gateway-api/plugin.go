// Package gatewayapi has hitline's plug-ins for the endpoint picker of the Gateway API's inference extension: a
// scorer that prefers the endpoints with most of a prompt, and a tokenizer for pickers that have none.
package gatewayapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
)

// The types of the plug-ins in an EndpointPickerConfig.
const (
	ScorerType    = "hitline-prefix-scorer"
	TokenizerType = "hitline-tokenizer"
)

// tokensKey is the data that the tokenizer produces and the scorer consumes: LLMRequest.TokenizedPrompt.
const tokensKey = "tokenized-prompt"

// Register makes the plug-ins known to the picker. Call it before the runner reads its configuration.
func Register() {
	plugin.Register(ScorerType, newScorer)
	plugin.Register(TokenizerType, newTokenizer)
}

// decode reads the parameters of a plug-in. A field that is not known is an error: it would be a typing error that
// nothing else shows.
func decode(parameters json.RawMessage, into any) error {
	if len(parameters) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(parameters))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	return nil
}

// parseTimeout reads a parameter of 1 ms to limit. An empty one is usual.
func parseTimeout(text string, usual, limit time.Duration) (time.Duration, error) {
	if text == "" {
		return usual, nil
	}
	timeout, err := time.ParseDuration(text)
	if err != nil || timeout < time.Millisecond || timeout > limit {
		return 0, fmt.Errorf("timeout is %q, must be 1ms to %v", text, limit)
	}
	return timeout, nil
}

// reportEvery is the time between two logged failures of a plug-in.
const reportEvery = 10 * time.Second

// failures logs what fails, and not for each request. The zero value is ready. Safe for concurrent use.
type failures struct {
	mu    sync.Mutex
	count int
	last  time.Time
}

// report counts a failure, and logs it if none was logged for a while.
func (f *failures) report(ctx context.Context, name plugin.TypedName, err error) {
	f.mu.Lock()
	f.count++
	count, due := f.count, time.Since(f.last) >= reportEvery
	if due {
		f.count, f.last = 0, time.Now()
	}
	f.mu.Unlock()
	if due {
		log.FromContext(ctx).Error(err, "requests are routed without hitline", "plugin", name, "requests", count)
	}
}
