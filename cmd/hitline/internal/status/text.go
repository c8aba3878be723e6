package status

import (
	"fmt"
	"strings"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/internal/printable"
	"github.com/hitline/hitline/lookup/tokens"
)

// barCells is how many characters a bar has.
const barCells = 40

// signs are the characters of places in a bar.
var signs = [numPlaces]rune{
	tokens.Engine: '░', tokens.InPool: '█', tokens.Emptied: 'm', tokens.Evicted: 'e', tokens.Saving: 's', tokens.Partial: 'p',
	tokens.Unsaved: 'u', tokens.NoAnswer: 'n', tokens.Rules: '·', tokens.New: ' ',
}

// Text returns a status for a terminal: what the page says, of all pools.
func Text(st Status) string {
	p := newPageData(st)
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	state := "ready"
	if !st.Ready {
		state = "NOT READY: " + printable.Text(st.NotReadyReason)
	}
	now := st.Rates["5m"]
	line("%s  hit share %s  %s lookups/s  p50 %s  p99 %s  up %s", state, formatShare(now.HitShare), formatPerSecond(now.Lookups, now.Seconds),
		formatSeconds(st.Latency.P50), formatSeconds(st.Latency.P99), formatSince(st.Stat.StartTime))
	if r := st.Router; r != nil {
		line("%d of %d sources followed", r.LiveSources, r.TotalSources)
		for _, s := range r.Sources {
			if why := trouble(s); why != "" {
				line("  %s rank %d: %s", printable.Text(s.Engine), s.Rank, printable.Text(why))
			}
		}
	}
	late, failed := p.CallsLate(), p.CallsFailed()
	if s := st.Store; s != nil && (s.State != "closed" || s.Error != "" || late+failed > 0) {
		why := ""
		if s.Error != "" {
			why = "; " + printable.Text(s.Error)
		}
		line("store: breaker %s, since the start %s calls late, %s failed%s", s.State, formatCount(late), formatCount(failed), why)
	}
	line("")
	for _, row := range p.Bars {
		line("%-4s[%s] %s%s", row.Name, textBar(row.Rate), formatShare(row.Rate.HitShare), partText(row.Part))
	}
	var key []string
	for _, place := range barOrder {
		key = append(key, fmt.Sprintf("%q %s", string(signs[place]), place))
	}
	line("    %s\n", strings.Join(key, ", "))
	table := cli.Table{}
	table.Row("place", "tokens/s", "share", "what to do")
	for _, l := range p.Losses {
		cure := ""
		if l.IsLost {
			cure = l.Place.Cure()
		}
		table.Row(l.Place, l.PerSecond, l.Share, cure)
	}
	line("%s\n", table.String())
	pools := cli.Table{}
	pools.Row("pool", "model", "lookups", "hit share", "prompts", "remembers for")
	for i := range st.Pools {
		of := &st.Pools[i]
		share, prompts, remembers := "–", "–", "–"
		if t := of.Stat.PoolTokens; t != nil {
			share, prompts = formatShare(shareOf(t.Tokens)), formatCount(t.Prompts)
			if t.RetentionSeconds > 0 {
				remembers = formatSeconds(&t.RetentionSeconds)
			}
		}
		pools.Row(poolName(of.Name), of.Model, formatCount(of.Stat.Lookups), share, prompts, remembers)
	}
	line("%s", pools.String())
	p.addAskers(&b)
	p.addLostMost(&b)
	for i := range st.Pools {
		if of := &st.Pools[i]; of.HasCurve() {
			line("%s: %s", printable.Text(poolName(of.Name)), of.Advice())
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Rows that fit a terminal.
const maxAskerRows, maxLostRows = 8, 5

func (p *pageData) addAskers(b *strings.Builder) {
	if len(p.Askers) == 0 {
		return
	}
	var table cli.Table
	table.Row("asker", "pool", "prompts", "hit share", "first blocks shared")
	for _, a := range p.Askers[:min(len(p.Askers), maxAskerRows)] {
		table.Row(a.Asker.Name, poolName(a.Pool), formatCount(a.Prompts), formatShare(shareOf(a.Tokens)), formatShare(a.FirstBlockShared))
	}
	fmt.Fprintf(b, "\n%s\n", table.String())
}

func (p *pageData) addLostMost(b *strings.Builder) {
	if len(p.LostMost) == 0 {
		return
	}
	var table cli.Table
	table.Row("lost most", "pool", "asker", "place", "from block", "asked")
	for _, r := range p.LostMost[:min(len(p.LostMost), maxLostRows)] {
		table.Row(formatCount(r.Tokens), poolName(r.Pool), r.Asker, r.Place, r.Block, formatSince(r.At)+" ago")
	}
	fmt.Fprintf(b, "\n%s\n", table.String())
}

func partText(part string) string {
	if part == "" {
		return ""
	}
	return " (too early: " + part + " seen)"
}

// textBar returns the places of a rate in barCells characters.
func textBar(r Rate) string {
	total := int64(0)
	for _, n := range r.Tokens {
		total += n
	}
	bar := make([]rune, 0, barCells)
	sum := int64(0)
	for _, place := range barOrder {
		sum += r.Tokens[place.String()]
		for total > 0 && int64(len(bar))*total < sum*barCells {
			bar = append(bar, signs[place])
		}
	}
	return string(bar) + strings.Repeat(" ", barCells-len(bar))
}
