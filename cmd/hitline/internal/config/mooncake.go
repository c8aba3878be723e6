package config

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hitline/hitline/internal/regularfile"
)

// mooncakeVariable names the file with which Mooncake and vLLM's connector are configured.
const mooncakeVariable = "MOONCAKE_CONFIG_PATH"

// readMooncakeConfig takes the address of the master from Mooncake's own configuration if that
// backend is chosen and none is configured here.
func (c *Config) readMooncakeConfig(environ []string) error {
	if c.Backend.chosen != "mooncake" || len(c.Backend.Mooncake.Masters) > 0 {
		return nil
	}
	for _, entry := range environ {
		path, ok := strings.CutPrefix(entry, mooncakeVariable+"=")
		if !ok || path == "" {
			continue
		}
		at := origin{name: mooncakeVariable}
		text, err := regularfile.Read(path)
		if err != nil {
			return &problem{at: at, text: err.Error(), err: err}
		}
		var file struct {
			Master string `json:"master_server_address"`
		}
		if err := json.Unmarshal(text, &file); err != nil {
			return &problem{at: at, text: fmt.Sprintf("%s is no JSON: %v", path, err), err: err}
		}
		if file.Master == "" {
			return &problem{at: at, text: path + " has no master_server_address; give the address in backend.mooncake.masters"}
		}
		c.origins.set("backend.mooncake.masters", at)
		for master := range strings.SplitSeq(file.Master, ",") {
			c.Backend.Mooncake.Masters = append(c.Backend.Mooncake.Masters, strings.TrimSpace(master))
		}
	}
	return nil
}
