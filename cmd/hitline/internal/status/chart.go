package status

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/hitline/hitline/lookup/api"
)

// bar returns a rate's places as one bar. Its colours are classes of the page.
func bar(r Rate) template.HTML {
	total := int64(0)
	for _, n := range r.Tokens {
		total += n
	}
	var b strings.Builder
	b.WriteString(`<svg viewBox="0 0 1000 20" preserveAspectRatio="none" role="img">`)
	x := 0.
	for _, place := range barOrder {
		n := r.Tokens[place.String()]
		if n <= 0 {
			continue
		}
		width := 1000 * float64(n) / float64(total)
		fmt.Fprintf(&b, `<rect class="%s" x="%.2f" y="0" width="%.2f" height="20"><title>%s: %.1f %% of all tokens, %s</title></rect>`,
			place, x, width, place, 100*float64(n)/float64(total), whereTexts[place])
		x += width
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers and our own words
}

// hour returns the places of each half minute as columns of one height, the oldest on the left.
func hour(parts []sums) template.HTML {
	const height = 40
	var paths [numPlaces]strings.Builder
	for x, part := range parts {
		total := int64(0)
		for _, n := range part.tokens {
			total += n
		}
		y := float64(height)
		for _, place := range barOrder {
			if n := part.tokens[place]; n > 0 {
				rise := height * float64(n) / float64(total)
				y -= rise
				fmt.Fprintf(&paths[place], "M%d %.1fh1v%.1fh-1z", x, y, rise)
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="hour" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img"><title>the last hour by half minutes</title>`, len(parts), height)
	for _, place := range barOrder {
		if d := paths[place].String(); d != "" {
			fmt.Fprintf(&b, `<path class="%s" d="%s"><title>%s</title></path>`, place, d, place)
		}
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers and our own words
}

// Sizes of a curve.
const (
	curveWidth, curveHeight = 640, 220
	curveLeft, curveRight   = 48, 16
	curveTop, curveBottom   = 12, 40
)

// curve returns the hit shares that LRU pools of other sizes would have, with the measured one, and today's size if it is known.
func curve(p Pool) template.HTML {
	t := p.Stat.PoolTokens
	sizes := slices.DeleteFunc(slices.Clone(t.Curve), func(of api.SizedPool) bool { return of.Size == "inf" })
	low, high := math.Log2(float64(sizes[0].Blocks)), math.Log2(float64(sizes[len(sizes)-1].Blocks))
	at := func(blocks, share float64) (x, y float64) {
		x = curveLeft + (curveWidth-curveLeft-curveRight)*(math.Log2(max(blocks, 1))-low)/max(high-low, 1)
		return min(max(x, curveLeft), curveWidth-curveRight), curveTop + (curveHeight-curveTop-curveBottom)*(1-share)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img"><title>hit share by size of the pool</title>`, curveWidth, curveHeight)
	for _, share := range []float64{0, .5, 1} {
		_, y := at(1, share)
		fmt.Fprintf(&b, `<line class="axis" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%.0f %%</text>`,
			curveLeft, curveWidth-curveRight, y, y, curveLeft-6, y+4, 100*share)
	}
	var points []string
	unit := "blocks"
	for i, of := range sizes {
		x, y := at(float64(of.Blocks), of.HitShare)
		points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
		label := formatBlocks(of.Blocks)
		if of.Size != "" {
			label, unit = of.Size, "times today's size"
		}
		if i%max(1, len(sizes)/6) == 0 {
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x, curveHeight-curveBottom+18, label)
		}
		if of.Size == "1" {
			fmt.Fprintf(&b, `<line class="today" x1="%.1f" x2="%.1f" y1="%d" y2="%d"><title>today: %s blocks</title></line>`,
				x, x, curveTop, curveHeight-curveBottom, formatCount(of.Blocks))
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">today</text>`, x+5, curveTop+12)
		}
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><polyline class="curve" points="%s"/>`,
		curveWidth-curveRight, curveHeight-4, unit, strings.Join(points, " "))
	if t.MeasuredHitShare != nil {
		share := *t.MeasuredHitShare
		_, y := at(1, share)
		fmt.Fprintf(&b, `<line class="measured" x1="%d" x2="%d" y1="%.1f" y2="%.1f"><title>measured: %.1f %%</title></line>`,
			curveLeft, curveWidth-curveRight, y, y, 100*share)
		fmt.Fprintf(&b, `<text x="%d" y="%.1f">measured %.1f %%</text>`, curveLeft+4, y-5, 100*share)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers and our own words
}

// isBelow is by how much a pool may give less than an LRU pool of its size would, before that is told.
const isBelow = 0.05

// Advice says what other sizes of the pool would give.
func (p *Pool) Advice() string {
	t := p.Stat.PoolTokens
	now, ok := t.AtSize("1")
	if !ok {
		all := t.Curve[len(t.Curve)-1]
		return fmt.Sprintf("An LRU pool of %s blocks or more would give all that was ever asked for before: %.1f %%.", formatBlocks(all.Blocks), 100*all.HitShare)
	}
	twice, _ := t.AtSize("2")
	half, _ := t.AtSize("0.5")
	all, _ := t.AtSize("inf")
	text := fmt.Sprintf("Twice the pool: %+.1f points; half of it: %+.1f. One that forgets nothing would give all that was ever asked for before: %.1f %%.",
		100*(twice-now), 100*(half-now), 100*all)
	if measured := t.MeasuredHitShare; measured != nil && *measured < now-isBelow {
		text += fmt.Sprintf(" It gives %.1f %%, and an LRU pool of its size would give %.1f %%: see what else is lost.", 100**measured, 100*now)
	}
	return text
}

// formatBlocks returns a power of two blocks in words.
func formatBlocks(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%dG", n>>30)
	case n >= 1<<20:
		return fmt.Sprintf("%dM", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dk", n>>10)
	}
	return fmt.Sprint(n)
}
