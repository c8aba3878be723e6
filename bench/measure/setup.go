package measure

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/klauspost/cpuid/v2"

	"github.com/hitline/hitline/internal/buildinfo"
	"github.com/hitline/hitline/simd"
)

// Setup says what a report was made with, so that it can be made again. Every report
// holds one.
type Setup struct {
	Started time.Time `json:"started"` // UTC, to the second
	Command []string  `json:"command"` // the program and its arguments, as they were typed
	Version string    `json:"version"` // of the program; "devel" if it is unknown
	Commit  string    `json:"commit"`  // revision of its source, "+dirty" if there were changes; empty if unknown
	Seed    uint64    `json:"seed"`    // the same seed makes the same requests; 0 if nothing is drawn
	Machine Machine   `json:"machine"`
}

// Machine is what the program ran on.
type Machine struct {
	CPU        string `json:"cpu"`        // as the processor calls itself; empty if it does not
	Cores      int    `json:"cores"`      // processors that the program might use when it began
	Platform   string `json:"platform"`   // such as linux/amd64
	System     string `json:"system"`     // release of the operating system; empty if unknown
	Go         string `json:"go"`         // release that built the program
	GOMAXPROCS int    `json:"gomaxprocs"` // when NewSetup was called
	Kernel     string `json:"kernel"`     // of package simd
}

// NewSetup returns the setup of this process, for a report that begins now.
func NewSetup(seed uint64) Setup {
	b := buildinfo.Read()
	return Setup{
		Started: time.Now().UTC().Truncate(time.Second), Command: os.Args, Version: b.Version, Commit: b.Revision(), Seed: seed,
		Machine: Machine{
			CPU: strings.Join(strings.Fields(cpuid.CPU.BrandName), " "), Cores: runtime.NumCPU(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
			System: systemRelease(), Go: runtime.Version(), GOMAXPROCS: runtime.GOMAXPROCS(0), Kernel: simd.Kernel(),
		},
	}
}

// systemRelease returns the release of the Linux kernel, and nothing elsewhere.
func systemRelease() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease") // not there: unknown
	return strings.TrimSpace(string(text))
}

// String returns one line for people: the version, most of the machine, and the seed if
// there is one.
func (s Setup) String() string {
	m := s.Machine
	text := fmt.Sprintf("hitbench %s, %s, %d cores of %s, %s, kernel %s", s.Version, m.Platform, m.Cores, cmp.Or(m.CPU, "an unnamed processor"), m.Go, m.Kernel)
	if s.Seed != 0 {
		text += fmt.Sprintf(", --seed %d", s.Seed)
	}
	return text
}

// RandomSeed returns a seed that is not 0, another one each time.
func RandomSeed() uint64 { return max(rand.Uint64()>>11, 1) } // 53 bits: as many as a JSON number keeps
