package mooncake

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/storetest"
)

// facts is what a release does, by subject.
type facts map[string]string

// What a question does to the lease of a block, and to that of another block of its group.
const (
	leasesNothing   = "nothing"
	leasesAlways    = "leases, renews early, renews late; group: leases, renews early, renews late"
	leasesGroupLate = "leases, renews early, renews late; group: leases, renews late"
)

// pinned has the facts of releases, which docs/stores.md states. A newer release is compared with the last one.
var pinned = [][4]string{
	{"release", "0.3.12.post1", "0.3.13.post1", "0.3.14"},
	{"stated version", "2.0.0", "2.0.0", "2.0.0"},
	{"calls", "BatchExistKey GetReplicaList Ping RemoveAll ServiceReady", "BatchExistKey GetReplicaList Ping RemoveAll ServiceReady", "BatchExistKey BatchProbeKey GetReplicaList Ping RemoveAll ServiceReady"},
	{"lease stated by a reply of type", "75ecf440", "88c6276c", "88c6276c"},
	{"default of default_kv_lease_ttl", "10000", "10000", "10000"},
	{"default of client_ttl", "10", "10", "10"},
	{"default of metrics_host", "no such flag", "0.0.0.0", "0.0.0.0"},
	{"first put", leasesNothing, leasesNothing, leasesNothing},
	{"put again", leasesNothing, leasesNothing, leasesAlways},
	{"lookup", leasesGroupLate, leasesGroupLate, leasesAlways},
	{"probe", leasesGroupLate, leasesGroupLate, leasesNothing},
	{"question for the lease", leasesGroupLate, leasesGroupLate, leasesAlways},
	{"load", leasesGroupLate, leasesGroupLate, leasesAlways},
	{"list of keys", leasesNothing, leasesNothing, leasesNothing},
	{"kept in a full store after a first lease", "probed all, looked up again all, others none", "probed all, looked up again all, others none", "probed none, looked up again all, others none"},
	{"events", "none", "none", "remove all, remove_all all, eviction none, dead node none"},
}

// pinnedFacts returns the facts of a release, or those of the last one.
func pinnedFacts(release string) (compared string, want facts) {
	column := slices.Index(pinned[0][:], release)
	if column < 0 {
		column = len(pinned[0]) - 1
	}
	want = facts{}
	for _, row := range pinned[1:] {
		want[row[0]] = row[column]
	}
	return pinned[0][column], want
}

// testReleases returns what TestReleases runs: HITLINE_TEST_MOONCAKE_RELEASES, or two.
func testReleases() []string {
	named := strings.FieldsFunc(os.Getenv("HITLINE_TEST_MOONCAKE_RELEASES"), func(c rune) bool { return c == ',' })
	if len(named) == 0 {
		named = []string{storetest.MooncakeRelease, storetest.MooncakeProbes}
	}
	return named
}

// TestReleases asks a real master of each release for its facts, and logs them. scripts/e2e reads the log.
func TestReleases(t *testing.T) {
	for _, release := range testReleases() {
		t.Run(release, func(t *testing.T) {
			e := storetest.RequireMooncake(t, release)
			if !e.BindsAdmin() && os.Getenv(isolated) == "" {
				runIsolated(t, release)
				return
			}
			if storetest.Tenantless(release) {
				testTenantless(t, e)
				return
			}
			compared, want := pinnedFacts(release)
			found := examine(t, e)
			for _, subject := range slices.Sorted(maps.Keys(found)) {
				t.Logf("%s = %s", subject, found[subject])
				if found[subject] != want[subject] {
					t.Errorf("%s: %q, but %s has %q", subject, found[subject], compared, want[subject])
				}
			}
			require.Len(t, found, len(want))
		})
	}
}

const isolated = "HITLINE_TEST_ISOLATED"

// runIsolated runs the test of a release whose master listens on all addresses, in a network namespace without any.
func runIsolated(t *testing.T, release string) {
	cmd := exec.CommandContext(contextWithin(t, 10*testTimeout), "unshare", "--map-root-user", "--net",
		"sh", "-c", `ip link set lo up && exec "$0" "$@"`, os.Args[0], "-test.v", "-test.run=^TestReleases$")
	cmd.Env = append(os.Environ(), isolated+"=1", "HITLINE_TEST_MOONCAKE_RELEASES="+release)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err, "unshare of util-linux and ip of iproute2 must be there, and user namespaces allowed")
}

// examined is a master whose blocks are leased for examinedLease, with a node.
type examined struct {
	*testing.T
	node      *storetest.Node
	client    *Client
	publishes string      // the endpoint of the master's events, "" if nothing listens there
	events    [][2]string // that came: type and key
	evicted   []string    // keys
}

const examinedLease = 4 * time.Second

// slack is the time around the end of a lease in which nothing is concluded.
const slack = 100 * time.Millisecond

// testForm compares answers with those of Mooncake's own client, and resets.
func (x *examined) testForm(form Form) Info {
	info, err := x.client.Info(contextWithin(x, testTimeout))
	require.NoError(x, err)
	require.Equal(x, form, info.Form)
	x.node.Put("a", "c")
	exists := func() []int {
		answers, err := x.client.Exists(contextWithin(x, testTimeout), backend.KeyList{"a", "b", "c"}, false)
		require.NoError(x, err)
		require.Equal(x, answers, x.node.Exist("a", "b", "c"))
		return answers
	}
	require.Equal(x, []int{1, 0, 1}, exists())
	require.NoError(x, x.client.Reset(contextWithin(x, testTimeout)), "leased keys too")
	require.Equal(x, []int{0, 0, 0}, exists())
	return info
}

// testTenantless tests a release of v0.3.5 to v0.3.11. Its facts are not pinned.
func testTenantless(t *testing.T, e *storetest.MooncakeEnv) {
	m := storetest.StartMaster(t, e, "")
	x := &examined{T: t, node: storetest.StartNode(t, e, m), client: newClient(t, Config{Masters: []string{m.RPC}, AllowReset: true})}
	x.testForm(FormKeys)
}

func examine(t *testing.T, e *storetest.MooncakeEnv) facts {
	events := storetest.FreeAddr(t)
	m := storetest.StartMaster(t, e, "", "--default_kv_lease_ttl="+fmt.Sprint(examinedLease.Milliseconds()), "--client_ttl=10",
		"--eviction_high_watermark_ratio=0.1", "--enable_kv_events", "--kv_events_bind_endpoint=tcp://"+events, "--kv_events_backend_id=test")
	x := &examined{T: t, node: storetest.StartNode(t, e, m)}
	x.client = newClient(t, Config{Masters: []string{m.RPC}, Admin: []string{m.Admin}, AllowReset: true})
	if c, err := net.Dial("tcp", events); err == nil {
		c.Close()
		x.publishes = "tcp://" + events
		x.node.Follow(x.publishes)
	}
	found := facts{
		"stated version":                  x.testForm(FormTenant).Version,
		"default of default_kv_lease_ttl": e.Default(t, "default_kv_lease_ttl"),
		"default of client_ttl":           e.Default(t, "client_(?:active_)?ttl(?:_sec)?"), // v0.3.14 has a new name
		"default of metrics_host":         e.Default(t, "metrics_host"),
	}
	found["calls"], found["lease stated by a reply of type"] = x.calls()
	x.ask(false, "calls")
	eventually(t, "the lease is known", func() bool { return x.client.Lease().Stated == examinedLease })
	maps.Copy(found, x.leases())
	found["kept in a full store after a first lease"] = x.kept()
	if found["events"] = "none"; x.publishes != "" {
		found["events"] = x.published(e, m)
	}
	wrong := newClient(t, Config{Masters: []string{m.Admin}, DialTimeout: time.Second})
	_, err := wrong.Info(contextWithin(t, testTimeout))
	require.ErrorContains(t, err, "is it the HTTP admin port")
	return found
}

// calls returns which calls of hitline the master knows, and the type of the reply that states the lease.
func (x *examined) calls() (all, leaseType string) {
	x.node.Put("calls")
	none := backend.KeyList(nil)
	var known []string
	for _, call := range []struct {
		name string
		make func(*conn) error
	}{
		{"BatchExistKey", func(cn *conn) error { _, err := cn.batchExist(FormTenant, none, 0, 0, DefaultTenant, nil); return err }},
		{"BatchProbeKey", func(cn *conn) error { _, err := cn.batchExist(formProbe, none, 0, 0, DefaultTenant, nil); return err }},
		{"GetReplicaList", func(cn *conn) error {
			_, unknown, err := cn.lease("calls", DefaultTenant)
			leaseType = fmt.Sprintf("%08x", le.Uint32(cn.in)&^hasMeta)
			return cmp.Or(err, unknown)
		}},
		{"Ping", func(cn *conn) error {
			cn.beginRequest(fnPing)
			cn.out = appendPing(cn.out)
			_, err := cn.roundTrip(maxErrorReply)
			return err
		}},
		{"RemoveAll", func(cn *conn) error { _, err := cn.removeAll(DefaultTenant); return err }},
		{"ServiceReady", func(cn *conn) error { _, err := cn.version(); return err }},
	} {
		err := x.client.withOwnConn(contextWithin(x, testTimeout), func(cn *conn) error {
			err := call.make(cn)
			if isUnknownCall(err) {
				return nil
			}
			known = append(known, call.name)
			return err
		})
		require.NoError(x, err, call.name)
	}
	x.node.Put("calls")
	return strings.Join(known, " "), leaseType
}

// ask asks for keys as a lookup does, or as explain does.
func (x *examined) ask(probe bool, keys ...string) {
	_, err := x.client.Exists(contextWithin(x, testTimeout), backend.KeyList(keys), probe)
	require.NoError(x, err)
}

// attempt calls do until it was fast enough to conclude something.
func (x *examined) attempt(do func(prefix string) bool) {
	for i := range 8 {
		if do(fmt.Sprintf("%s %d ", x.Name(), i)) {
			return
		}
	}
	x.Fatal("the machine is too slow to conclude anything")
}

// When a block is asked for: before it is leased, and in the first and in the second half of its lease.
const (
	unleased = "leases"
	early    = "renews early"
	late     = "renews late"
)

// leases returns what each question does to the lease of a block, and to that of another block of its group. The master
// tells by refusing to remove a block.
func (x *examined) leases() facts {
	questions := map[string]func(key string){
		"first put": func(string) {},
		"lookup":    func(key string) { x.ask(false, key) },
		"probe":     func(key string) { x.ask(true, key) },
		"question for the lease": func(key string) {
			require.NoError(x, x.client.withConn(contextWithin(x, testTimeout), func(cn *conn) error {
				_, unknown, err := cn.lease(key, DefaultTenant)
				return cmp.Or(err, unknown)
			}))
		},
		"load":         func(key string) { require.Equal(x, 1, x.node.Get(key)) },
		"put again":    func(key string) { x.node.Put(key) },
		"list of keys": func(string) { x.keys() },
	}
	subjects := slices.Sorted(maps.Keys(questions))
	found := facts{}
	x.attempt(func(prefix string) bool {
		alone, group := facts{}, facts{}
		key := func(subject, when string) string { return prefix + subject + ", " + when }
		mate := func(key string) string { return key + ", of its group" }
		ask := func(when string) { // the group's first block is asked for
			for _, s := range subjects {
				questions[s](key(s, when))
				questions[s](mate(key(s, when)) + " 1")
			}
		}
		record := func(when string) {
			for _, s := range subjects {
				if x.node.Remove(key(s, when)) == objectHasLease {
					alone[s] += ", " + when
				}
				if x.node.Remove(mate(key(s, when))+" 2") == objectHasLease {
					group[s] += ", " + when
				}
			}
		}
		var leased []string
		for _, when := range []string{unleased, early, late} {
			for _, s := range subjects {
				x.node.Put(key(s, when))
				id := mate(key(s, when))
				require.Zero(x, x.node.TryPut(map[string]any{"group_ids": []string{id, id}}, 1, id+" 1", id+" 2"))
				if when != unleased {
					leased = append(leased, key(s, when), id+" 1")
				}
			}
		}
		began := time.Now()
		ask(unleased)
		record(unleased)
		inTime := time.Since(began) < examinedLease-slack

		began = time.Now()
		x.ask(false, leased...)
		ended := time.Now()
		time.Sleep(time.Until(ended.Add(examinedLease * 3 / 10)))
		renewedEarly := time.Now()
		ask(early)
		inTime = inTime && time.Since(began) < examinedLease/2-slack
		time.Sleep(time.Until(ended.Add(examinedLease * 3 / 4)))
		renewedLate := time.Now()
		ask(late)
		inTime = inTime && time.Since(began) < examinedLease-slack
		time.Sleep(time.Until(ended.Add(examinedLease + slack)))
		record(early)
		inTime = inTime && time.Since(renewedEarly) < examinedLease-slack
		record(late)
		inTime = inTime && time.Since(renewedLate) < examinedLease-slack
		for _, s := range subjects {
			if found[s] = leasesNothing; alone[s]+group[s] != "" {
				found[s] = strings.TrimPrefix(alone[s]+"; group: "+strings.TrimPrefix(group[s], ", "), ", ")
			}
		}
		return inTime
	})
	return found
}

// kept fills the store beside blocks that were looked up, of which some are probed and some looked up again late in
// their lease. It returns which of them the master keeps when that lease is over.
func (x *examined) kept() (kept string) {
	x.attempt(func(prefix string) bool {
		x.node.RemoveAll()
		named := func(what string, n int) (keys []string) {
			for i := range n {
				keys = append(keys, fmt.Sprint(prefix, what, i))
			}
			return keys
		}
		others, probed, again := named("other", 60), named("probed", 20), named("again", 20)
		x.node.PutSized(blockSize, slices.Concat(others, probed, again)...)
		began := time.Now()
		x.ask(false, slices.Concat(others, probed, again)...)
		ended := time.Now()
		for part := range slices.Chunk(named("never evicted", 250), 100) {
			require.Zero(x, x.node.TryPut(map[string]any{"with_hard_pin": true}, blockSize, part...))
		}
		time.Sleep(time.Until(ended.Add(examinedLease * 3 / 4)))
		renewed := time.Now()
		x.ask(true, probed...)
		x.ask(false, again...)
		inTime := time.Since(began) < examinedLease-slack
		time.Sleep(time.Until(renewed.Add(examinedLease - 10*slack)))
		keys := x.keys()
		x.evicted = missing(others, keys)
		kept = fmt.Sprintf("probed %s, looked up again %s, others %s", share(probed, keys), share(again, keys), share(others, keys))
		return inTime && time.Since(renewed) < examinedLease-slack
	})
	return kept
}

// keys returns the keys in the store.
func (x *examined) keys() []string {
	keys, _, err := x.client.Keys(contextWithin(x, testTimeout), 1<<20)
	require.NoError(x, err)
	return keys
}

// share says whether all, some or none of the elements of part are in whole.
func share(part, whole []string) string {
	switch len(missing(part, whole)) {
	case 0:
		return "all"
	case len(part):
		return "none"
	}
	return "some"
}

// missing returns the elements of part that are not in whole.
func missing(part, whole []string) []string {
	return slices.DeleteFunc(slices.Clone(part), func(s string) bool { return slices.Contains(whole, s) })
}

// receive reads the events up to that of a new block.
func (x *examined) receive(n *storetest.Node, marker string) {
	for i := 0; !slices.Contains(x.events, [2]string{"stored", marker}); i++ {
		if require.Less(x, i, 200, "no event of a block that was put"); i%10 == 0 { // the first ones come before the subscription
			marker = fmt.Sprint(x.Name(), marker, i)
			n.Put(marker)
		}
		x.events = append(x.events, n.Events()...)
	}
}

// published returns which ways to lose a block the master publishes.
func (x *examined) published(e *storetest.MooncakeEnv, m *storetest.Master) string {
	x.node.RemoveAll() // nothing is evicted any longer
	x.node.Put("removed", "all removed")
	require.Zero(x, x.node.Remove("removed"))
	x.node.RemoveAll()
	x.receive(x.node, "gone")
	x.node.Put("dead")
	second := storetest.StartNode(x.T, e, m)
	second.Follow(x.publishes)
	x.receive(second, "followed")
	x.node.Kill()
	eventually(x, "the dead node's block is gone", func() bool {
		return !slices.Contains(x.keys(), "dead")
	})
	x.receive(second, "after")
	var gone []string
	for _, event := range x.events {
		if event[0] != "stored" {
			gone = append(gone, event[1])
		}
	}
	return fmt.Sprintf("remove %s, remove_all %s, eviction %s, dead node %s", share([]string{"removed"}, gone),
		share([]string{"all removed"}, gone), share(x.evicted, gone), share([]string{"dead"}, gone))
}
