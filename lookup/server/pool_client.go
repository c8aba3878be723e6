package server

import (
	"encoding/json"
	"strconv"

	"github.com/hitline/hitline/internal/printable"
)

// maxClientText is the length in bytes of the longest text of a client that is kept.
const maxClientText = 128

// clientInfo is what the client of a connection has said of itself with its pool. It names the asker, and has no
// part in any answer. What the client has not said is empty.
type clientInfo struct {
	process    string // random, of one operating-system process
	instanceID string // of the engine
	role       string // of the engine, such as kv_consumer
	rank       string // data-parallel, in decimal
}

// asker returns who asks by a connection of the client, "" if it has not said so.
func (c *clientInfo) asker() string {
	const most = 64 // bytes of each text
	short := func(text string) string { return printable.Cut(text, most) }
	if c.process != "" && c.instanceID != "" {
		return short(c.instanceID) + "/" + short(c.process)
	}
	return short(c.process)
}

// parseClient returns what the server keeps of the object client of a pool request, whose keys are free. Values of
// another type or a greater length are not kept, and no mistake: the client may be of any version.
func parseClient(object json.RawMessage) (info clientInfo) {
	var values map[string]json.RawMessage
	if json.Unmarshal(object, &values) != nil { // also if there is none
		return info
	}
	text := func(key string) string {
		var value string
		if json.Unmarshal(values[key], &value) != nil || len(value) > maxClientText {
			return ""
		}
		return value
	}
	info.process, info.instanceID, info.role = text("process"), text("instance_id"), text("role")
	var rank uint32
	if value, ok := values["rank"]; ok && json.Unmarshal(value, &rank) == nil && string(value) != "null" {
		info.rank = strconv.FormatUint(uint64(rank), 10)
	}
	return info
}
