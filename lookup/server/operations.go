package server

import (
	"github.com/hitline/hitline/netproto"
)

func init() { // the functions refer to the table
	operations = [netproto.NumTags]operation{
		netproto.TagLookup:      {inline: overIndex, lookup: true, hit: true, callsStore: true, coalesced: true, run: runLookup},
		netproto.TagLookupFrom:  {inline: overIndex, lookup: true, hit: true, from: true, callsStore: true, coalesced: true, run: runLookup},
		netproto.TagExplain:     {lookup: true, from: true, callsStore: true, run: runExplain, replyBytes: explanationBytes},
		netproto.TagPlan:        {lookup: true, hit: true, from: true, callsStore: true, run: runPlan, replyBytes: masksBytes},
		netproto.TagLoadMask:    {run: runMasks, replyBytes: masksBytes},
		netproto.TagStoreMask:   {run: runMasks, replyBytes: masksBytes},
		netproto.TagLookupMask:  {run: runMasks, replyBytes: masksBytes},
		netproto.TagStore:       {inline: overIndex, callsStore: true, changes: true, run: runStore},
		netproto.TagEvict:       {inline: overIndex, callsStore: true, changes: true, run: runEvict},
		netproto.TagStorePrompt: {callsStore: true, changes: true, run: runStorePrompt},
		netproto.TagReset:       {callsStore: true, changes: true, run: runReset},
		netproto.TagResetRank:   {callsStore: true, changes: true, run: runResetRank},
		netproto.TagRenew:       {apply: applyRenew},
		netproto.TagPing:        {inline: always, noPool: true, apply: applyPing, replyBytes: echoBytes},
		netproto.TagStat:        {noPool: true, run: runStat, replyBytes: statBytes},
		netproto.TagPool:        {noPool: true, changes: true, run: runPool, apply: applyPool},
		netproto.TagAuth:        {noPool: true, changes: true, apply: applyAuth},
		netproto.TagUnknown:     {noPool: true},
	}
}
