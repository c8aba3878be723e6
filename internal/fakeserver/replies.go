package fakeserver

// replies has each document that a client reads.
var replies = map[string]reply{
	"query": {
		document: `{"instances": {
				"engine-0": {"longest_matched": 32, "gpu": 16, "cpu": 32, "disk": 0, "dp": {"0": 16, "1": 32}},
				"engine-1": {"longest_matched": 16, "gpu": 0, "cpu": 0, "disk": 0, "dp": {"0": 16}, "media": {"predicted": 16}}},
			"tenant_id": "default", "loadable_tokens": 48, "loadable_unknown": "why",
			"unsure": {"engine-1": ["stale"]}, "unsure_ranks": {"engine-1": {"1": ["stale"]}},
			"kv_hints": {"engine-0": {"actions":[],"message_id":"m","protocol_version":"0.1"}}}`,
		maps: []string{
			"instances", "instances.*.dp", "instances.*.media", "unsure", "unsure_ranks", "unsure_ranks.*", "kv_hints",
		},
		opaque: "kv_hints.*",
	},
	"services": {
		document: `{"time": "2026-11-28T12:00:00Z",
			"models": [{"model": "llama", "tenant_id": "default", "block_size": 16, "configured": true, "pool": "", "hashes_differ": true,
				"blocks": 3, "entries": 4, "sets": 1, "bytes": 99, "max_bytes": 1073741824,
				"holders": [{"instance_id": "engine-0", "dp_rank": 0, "stale": false, "blocks": 3}]}],
			"sources": [{"name": "s", "endpoint": "tcp://127.0.0.1:1", "state": "live", "stale": true, "complete": false, "blocks": 3,
				"next_sequence": 7, "batch_rank": 0, "batches": 7, "stored": 3, "removed": 0, "cleared": 0, "unheld": 0, "dropped": 0,
				"unknown": 0, "gaps": 0, "lost": 0, "replays": 1, "checks": 0, "restarts": 0, "connects": 1, "errors": 1,
				"last_event": "2026-11-28T11:59:00Z", "last_error": "refused", "last_error_time": "2026-11-28T11:59:30Z",
				"model": "llama", "tenant_id": "default", "instance_id": "engine-0", "dp_rank": 0, "registered": false,
				"hashes": "differ", "hashes_reason": "xxhash"}]}`,
	},
	"refusal over HTTP": {document: `{"error": {"code": "no_hashing", "message": "the model has no hash"}}`},
	"ping": {
		document: `{"instance": "0123456789abcdef", "start_time": "2026-11-28T12:00:00Z", "version": "v1", "protocol": 1,
			"requests": ["lookup", "ping"], "prompt_alignment": 16, "limits": {"max_message": 1048576, "max_frames": 2100,
			"max_hashes": 2000, "max_in_flight": 1024, "max_in_flight_bytes": 1048576}}`,
	},
	"pool": {
		document: `{"name": "p", "digest": "00", "vllm": "0.33.0", "alignment": 16,
			"groups": [{"kind": "full_attention", "block_size": 16, "stride": 1, "ranks": 1, "key_prefix": "m@tp_rank:0@group:0"}],
			"hash_len": 32, "tail_boundaries": true, "backend": "mooncake", "lease_ms": 5000, "backend_timeout_ms": 100,
			"renew": "auto", "prefixes_sha256": "00", "pool": {"vllm": "0.33.0", "model_name": "m", "hash_block_size": 16,
			"scheduler_block_size": 16, "groups": [{"kind": "full_attention", "block_size": 16}]}, "reset_refused": "why"}`,
	},
	"stat": {
		document: `{"version": "v1", "instance": "0123456789abcdef", "pool": "p", "pools": 1, "pool_names": ["p"], "vllm": "0.33.0",
			"kernel": "avx2", "backend": "memory", "entries": 5, "lookups": 3, "tokens": {"pool": 64}, "closed": {"idle": 2},
			"curve": [{"blocks": 1024, "hit_share": 0.5}], "askers": [{"name": "a", "prompts": 1, "tokens": {"pool": 64}}],
			"requests": {"lookup": 3}, "not_allowed": {"reset": 1}}`,
		maps: []string{"closed", "requests", "not_allowed", "tokens", "askers[].tokens"},
	},
	"explain": {
		document: `{"pool": "p", "start_tokens": 0, "hit_tokens": 16, "groups": [{"group": 0, "kind": "full_attention", "end_tokens": 16,
			"reason": "rank_missing", "first_missing_block": 1, "missing_rank": {"tp_rank": 2, "pp_rank": 1, "pcp_rank": 0},
			"missing_ranks": 3, "gap_start": 1, "gap_end": 4}], "account": {"tokens": {"pool": 16, "evicted": 16}, "place": "evicted", "block": 1}}`,
		maps: []string{"account.tokens"},
	},
	"refusal": {
		document: `{"refusal": "pool_differs", "request": "store", "frame": 1, "limit": 7,
			"differences": [{"field": "tp_size", "configured": 2, "described": 1}]}`,
	},
	"partly done": {
		document: `{"refusal": "partly_done", "request": "reset", "parts": [{"group": 0, "tp_rank": 1, "pp_rank": 0, "pcp_rank": 0, "first_chunk": 2, "chunks": 3, "error": "late"}], "more_parts": 2}`,
	},
}
