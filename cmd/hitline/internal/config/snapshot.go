package config

import "time"

// Snapshot is a file that keeps the index over a restart.
type Snapshot struct {
	Path     string   `yaml:"path"`     // "": none is written or loaded
	Interval Duration `yaml:"interval"` // 0: one is written at the end alone
	MaxAge   Duration `yaml:"max_age"`  // 0: one of any age is loaded
}

// SnapshotWarnings returns what may not be meant in backend.memory.snapshot.
func (c *Config) SnapshotWarnings() []string {
	const section = "backend.memory.snapshot"
	warn := func(field, format string, args ...any) []string {
		return []string{c.wrong(section+"."+field, format, args...).Error()}
	}
	s := c.Backend.Memory.Snapshot
	if s.Path != "" {
		if s.MaxAge > 0 && s.Interval > s.MaxAge {
			return warn("interval", "%v is longer than max_age, %v: after a crash the file may be too old to be loaded",
				time.Duration(s.Interval), time.Duration(s.MaxAge))
		}
		return nil
	}
	if _, off := c.origins[section+".path"]; off {
		return nil
	}
	for _, field := range []string{"interval", "max_age"} {
		if _, set := c.origins[section+"."+field]; set {
			return warn(field, "has no effect without path, the file to write and load")
		}
	}
	return nil
}
