//go:build linux && hitline_attack

package attack

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/hitline/hitline/coordinator"
	"golang.org/x/sys/unix"
)

var (
	rounds  = flag.Int("rounds", 3, "rounds of each row")
	seconds = flag.Float64("seconds", 5, "seconds of an attack that has no end of its own")
	overTLS = flag.Bool("tls", false, "connect over TLS, and run the rows against the handshake")

	// Of the process that attacks.
	attacks = flag.String("row", "", "attack in the way of this row")
	target  = flag.String("target", "", "address of the server to attack")
	metrics = flag.String("metrics", "", "address of its metrics")
	router  = flag.String("router", "", "address of its HTTP for routers")
)

// maxExtraWait is how much longer than in the control the innocent may wait.
const maxExtraWait = 50 * time.Millisecond

var (
	hitline  string // path of the server that TestMain builds
	maxFiles uint64
)

func TestMain(m *testing.M) {
	flag.Parse()
	maxFiles = raiseFiles()
	if *attacks != "" {
		if err := runAttacker(*attacks, &attacker{addr: *target, metrics: *metrics, router: *router}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	useTwoCores()
	debug.SetGCPercent(400) // fewer collections while the innocent asks
	dir, err := os.MkdirTemp("", "hitline-attack-")
	if err != nil {
		panic(err)
	}
	hitline = dir + "/hitline"
	if text, err := exec.Command("go", "build", "-o", hitline, "../../cmd/hitline").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("attack: cannot build hitline: %v\n%s", err, text))
	}
	writeConfigs(dir, *overTLS)
	startFullStore()
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// raiseFiles raises the limit of open files to the hard limit, which it returns.
func raiseFiles() uint64 {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	limit.Cur = limit.Max
	if err := errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)); err != nil {
		panic(fmt.Sprintf("attack: cannot raise the limit of open files: %v", err))
	}
	return limit.Max
}

// useTwoCores runs this program anew on the first two of its cores, so that measurements of different
// machines resemble each other. The servers and the attacking process inherit them.
func useTwoCores() {
	var allowed, two unix.CPUSet
	runtime.LockOSThread() // the new program has the cores of this thread
	defer runtime.UnlockOSThread()
	err := unix.SchedGetaffinity(0, &allowed)
	if err == nil && allowed.Count() <= 2 {
		return
	}
	for core := 0; err == nil && two.Count() < 2; core++ {
		if allowed.IsSet(core) {
			two.Set(core)
		}
	}
	if err == nil {
		err = unix.SchedSetaffinity(0, &two)
	}
	if err == nil {
		err = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	panic(fmt.Sprintf("attack: cannot choose the cores: %v", err))
}

func TestAttack(t *testing.T) {
	var table strings.Builder
	rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "row\tlongest ms\tcontrol\tp50 ms\tcontrol\tMiB\topen\tresult")
	for _, r := range allRows() {
		t.Run(r.name, func(t *testing.T) {
			switch {
			case r.files > maxFiles:
				t.Skipf("needs %d open files, the hard limit is %d (ulimit -Hn)", r.files, maxFiles)
			case r.tls && !*overTLS:
				t.Skip("runs with -tls only")
			}
			fmt.Fprint(rows, runRow(t, r))
		})
	}
	if err := rows.Flush(); err != nil {
		t.Error(err)
	}
	t.Logf("longest waits of the innocent, medians of the rounds:\n%s", &table)
}

// runRow runs all rounds of a row. It returns a line of the table.
func runRow(t *testing.T, r row) string {
	t.Log(r.what)
	var attacked, controls []half
	for round := range *rounds {
		for _, control := range []bool{true, false} {
			h, err := runHalf(t, r, control)
			if err != nil {
				t.Fatalf("round %d, control %v: %v", round+1, control, err)
			}
			if h.results[wrong]+h.results[unanswered] > 0 {
				t.Errorf("the innocent got wrong answers or none: %v", h.results)
			}
			if control {
				controls = append(controls, h)
			} else {
				attacked = append(attacked, h)
			}
		}
		h := attacked[round]
		t.Logf("round %d: longest wait %v, control %v; answers %v; sent %+v; changed: %s",
			round+1, h.longest, controls[round].longest, h.results, h.sent, strings.Join(h.changed, ", "))
	}
	var longest, controlLongest, p50, controlP50, extra []time.Duration
	for i := range attacked {
		longest, controlLongest = append(longest, attacked[i].longest), append(controlLongest, controls[i].longest)
		p50, controlP50 = append(p50, attacked[i].p50), append(controlP50, controls[i].p50)
		extra = append(extra, attacked[i].longest-controls[i].longest)
	}
	if more := median(extra); more > maxExtraWait {
		t.Errorf("the innocent waited %v longer than in the control, median of the rounds; at most %v is right", more, maxExtraWait)
	}
	lines := ""
	for _, name := range slices.Sorted(maps.Keys(attacked[0].bystanders)) {
		lines += checkBystander(t, r.name, name, attacked, controls)
	}
	result := "ok"
	if t.Failed() {
		result = "FAILED"
	}
	last := attacked[len(attacked)-1]
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d to %d\t%d\t%s\n", r.name, ms(median(longest)), ms(median(controlLongest)),
		ms(median(p50)), ms(median(controlP50)), last.memoryBefore, last.memoryPeak, last.open, result) + lines
}

// checkBystander checks what a bystander waited in all rounds. It returns a line of the table.
func checkBystander(t *testing.T, row, name string, attacked, controls []half) string {
	var longest, control, extra []time.Duration
	for i := range attacked {
		longest, control = append(longest, attacked[i].bystanders[name]), append(control, controls[i].bystanders[name])
		extra = append(extra, longest[i]-control[i])
	}
	if more := median(extra); more > maxExtraWait {
		t.Errorf("%s waited %v longer than in the control, median of the rounds; at most %v is right", name, more, maxExtraWait)
	}
	return fmt.Sprintf("%s %s\t%s\t%s\t\t\t\t\t\n", row, name, ms(median(longest)), ms(median(control)))
}

// median returns the middle one of the values, at least one, and the lower one of two.
func median(values []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(values))[(len(values)-1)/2]
}

// ms prints milliseconds.
func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }

// half is one attack, or its control.
type half struct {
	longest, p50             time.Duration // that the innocent waited
	results                  [numResults]int
	sent                     sentReport
	bystanders               map[string]time.Duration // how long each waited at most
	memoryBefore, memoryPeak int                      // MiB, of the attacked server
	open                     int                      // connections at the end of the attack
	changed                  []string                 // counters of failures, and of the index's entries
}

const (
	attackTimeout = 5 * time.Minute // of the preparation and of an attack, without its duration
	lead          = 300 * time.Millisecond
	trail         = 500 * time.Millisecond // after the attack that still counts
)

// runHalf runs an attack against a server. In a control the innocent has a server of its own.
func runHalf(t *testing.T, r row, control bool) (h half, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*attackTimeout+2*duration())
	defer cancel()
	var others *bystanders
	if r.bystanders {
		others = newBystanders(t, &r.spec)
	}
	target, err := startServer(ctx, r.spec)
	if err != nil {
		return h, err
	}
	defer target.stop()
	asked, want := target, r.want
	if control {
		want = exactly
		if asked, err = startServer(ctx, r.spec); err != nil {
			return h, err
		}
		defer asked.stop()
	}
	child, err := startAttacker(ctx, r, target)
	if err != nil {
		return h, err
	}
	defer child.stop()
	ranks := r.ranks
	if ranks == nil {
		ranks = []coordinator.GroupRank{{}}
	}
	innocent, err := newInnocent(asked.addr, ranks, want, r.spec.fullStore)
	if err != nil {
		return h, err
	}
	defer innocent.close()
	if err := innocent.prepare(); err != nil {
		return h, err
	}
	if others != nil {
		others.start(asked)
	}
	err = h.measure(child, target, innocent)
	if others != nil {
		var failed error
		h.bystanders, failed = others.stop()
		err = cmp.Or(err, failed)
	}
	return h, cmp.Or(target.died(), err)
}

// measure runs the attack of a process that is ready, while the innocent asks.
func (h *half) measure(child *attackerProcess, target *serverProcess, innocent *innocent) error {
	before, err := target.stat()
	if err != nil {
		return err
	}
	target.resetPeak()
	h.memoryBefore, _ = target.memory()
	innocent.start()
	time.Sleep(lead)
	begin := time.Now()
	if h.sent, err = child.run(); err != nil {
		return err
	}
	end := time.Now().Add(trail)
	time.Sleep(trail)
	_, h.memoryPeak = target.memory()
	after, err := target.stat()
	if err != nil {
		return err
	}
	h.changed, h.open = changes(before, after), int(after["connections"])-1-innocentConns // without those of this process
	h.longest, h.p50, h.results = summarize(innocent.stop(), begin, end)
	return nil
}

// duration is how long an attack takes that has no end of its own.
func duration() time.Duration { return time.Duration(*seconds * float64(time.Second)) }
