package browsertest

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"
)

// servePast passes a server's page on, with a past that it does not have: an hour of lookups. It returns
// the address.
func servePast(t *testing.T, s *server) string {
	target, err := url.Parse(s.page())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		if r.Request.URL.Path != "/status" {
			return nil
		}
		var status map[string]any
		if err := json.NewDecoder(r.Body).Decode(&status); err != nil {
			return err
		}
		addPast(status)
		body, err := json.Marshal(status)
		if err != nil {
			return err
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Del("Content-Length")
		return nil
	}
	passing := httptest.NewServer(proxy)
	t.Cleanup(passing.Close)
	return passing.URL + "/"
}

// addPast changes a status to that of a server that has been busy for five hours.
func addPast(status map[string]any) {
	const uptime = 5 * time.Hour
	now := time.Now().UTC()
	status["uptime_seconds"], status["start_time"] = uptime.Seconds(), now.Add(-uptime)
	pools, _ := status["pools"].([]any)
	lookups, stored, memory := 0.0, 0.0, 0.0 // lookups a second
	for i, p := range pools {
		pool, _ := p.(map[string]any)
		hour, perSecond := pastHour(now, float64(i))
		lookups += perSecond
		pool["hour"], pool["lookups"] = hour, math.Round(perSecond*uptime.Seconds())
		maxBytes, _ := pool["max_bytes"].(float64)
		used := math.Round(maxBytes * (0.84 - 0.17*float64(i)))
		pool["bytes"], pool["entries"] = used, math.Round(used/52)
		stored += math.Round(used / 52)
		memory += used
	}
	if stat, ok := status["stat"].(map[string]any); ok {
		stat["stored"], stat["entries"], stat["bytes"] = stored, stored, memory
	}
	status["snapshot"] = map[string]any{
		"path": "/var/lib/hitline/index.snapshot", "written": now.Add(-2 * time.Minute), "entries": stored, "bytes": 40 * stored,
		"seconds": 21.4, "failed": 0, "loaded_entries": 61_204_118,
	}
	quantiles := func(seconds, factor float64) map[string]any {
		return map[string]any{
			"count": math.Round(lookups * seconds), "p50": 61e-6 * factor, "p90": 140e-6 * factor, "p99": 410e-6 * factor, "p999": 1.3e-3 * factor,
		}
	}
	status["latency"] = map[string]any{"last_5m": quantiles(300, 1), "last_hour": quantiles(3600, 1.15)}
}

// pastHour returns an hour of a pool as /status has it, and its lookups a second. Pools of another number
// have another load.
func pastHour(now time.Time, number float64) (hour map[string]any, lookups float64) {
	const perMinute = 3e6 // tokens
	points, hits, total := []any{}, 0.0, 0.0
	for minute := range 60 {
		phase := float64(minute)/9 + 2*number
		tokens := perMinute / (number + 1) * (2 + math.Sin(phase) + 0.3*math.Sin(7*phase))
		hit := math.Round(tokens * (0.62 + 0.2*math.Sin(phase/2+number)))
		hits, total = hits+hit, total+tokens
		points = append(points, map[string]any{
			"time": now.Add(time.Duration(minute-59) * time.Minute), "hit_tokens": hit, "miss_tokens": math.Round(tokens - hit),
		})
	}
	lookups = total / 3600 / 2000 // so many tokens each
	return map[string]any{"hit_ratio": hits / total, "tokens_per_second": total / 3600, "lookups_per_second": lookups, "points": points}, lookups
}
