package config

// Snapshot is a file that keeps the index over a restart.
type Snapshot struct {
	Path     string   `yaml:"path"`     // "": none is written or loaded
	Interval Duration `yaml:"interval"` // 0: one is written at the end alone
	MaxAge   Duration `yaml:"max_age"`  // 0: one of any age is loaded
}
