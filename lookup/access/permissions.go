package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hitline/hitline/netproto"
)

// Permissions is a set of permissions.
type Permissions uint16

// The permissions. Each is that of the request of its name, Holders that of queries over HTTP.
const (
	Lookup Permissions = 1 << iota // lookup_from and renew too
	Plan                           // load_mask, store_mask and lookup_mask too, which say no more
	Explain
	Stat
	Ping
	Pool
	Holders // if the store is to be asked, Lookup too
	Store   // store_prompt too
	Evict
	Reset // reset_rank too
)

const (
	// All is every permission.
	All = Lookup | Plan | Explain | Stat | Ping | Pool | Holders | Store | Evict | Reset
	// ReadOnly is what peers of a listener without credentials may do, unless it is on loopback
	// or a unix socket: nothing that changes what is stored, or which pools there are.
	ReadOnly = Lookup | Plan | Explain | Stat | Ping | Holders
)

// names are in the order of the bits.
var names = [...]string{"lookup", "plan", "explain", "stat", "ping", "pool", "holders", "store", "evict", "reset"}

// needed is the permission for a request, none for auth and for unknown requests.
var needed = [...]Permissions{
	netproto.TagLookup: Lookup, netproto.TagLookupFrom: Lookup, netproto.TagRenew: Lookup, netproto.TagExplain: Explain,
	netproto.TagPlan: Plan, netproto.TagLoadMask: Plan, netproto.TagStoreMask: Plan, netproto.TagLookupMask: Plan,
	netproto.TagStat: Stat, netproto.TagPing: Ping, netproto.TagPool: Pool,
	netproto.TagStore: Store, netproto.TagStorePrompt: Store, netproto.TagEvict: Evict,
	netproto.TagReset: Reset, netproto.TagResetRank: Reset,
}

// ParsePermissions returns the permissions of these names. It returns an error for a name that
// is none.
func ParsePermissions(list []string) (Permissions, error) {
	var p Permissions
	for _, name := range list {
		i := slices.Index(names[:], name)
		if i < 0 {
			return 0, fmt.Errorf("%q is no permission; known are %s", name, strings.Join(names[:], ", "))
		}
		p |= 1 << i
	}
	return p, nil
}

// Names returns the names of the permissions, in the order of All. The caller owns the result.
func (p Permissions) Names() []string {
	list := []string{}
	for i, name := range names {
		if p&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	return list
}

// String returns the names, joined by commas.
func (p Permissions) String() string { return strings.Join(p.Names(), ", ") }

// Allows reports whether the permissions are enough for a request. Auth and unknown requests need
// none.
func (p Permissions) Allows(tag netproto.Tag) bool {
	return int(tag) >= len(needed) || p&needed[tag] == needed[tag]
}
