package picture

// label is the name of a curve, beside the curve's last point.
type label struct {
	lines []string
	style style
	x, y  float64 // of the last point
	at    float64 // height of the middle of the text
}

// height returns what the label takes.
func (l label) height() float64 { return float64(len(l.lines))*lineHeight + 2 }

// heightOf returns what labels take below each other.
func heightOf(labels []label) (height float64) {
	for _, l := range labels {
		height += l.height()
	}
	return height
}

// spread moves labels, which are sorted by y, apart: each comes as near to its y as those above
// and below allow, between top and bottom. They must fit there.
func spread(labels []label, top, bottom float64) {
	// Without the heights of the labels above, all that is left of "no overlap" is "in order".
	// What is out of order takes its mean.
	type block struct {
		sum   float64
		count int
	}
	var blocks []block
	mean := func(b block) float64 { return b.sum / float64(b.count) }
	total := 0.0
	for _, l := range labels {
		b := block{l.y - total - l.height()/2, 1}
		for n := len(blocks); n > 0 && mean(blocks[n-1]) > mean(b); n-- {
			b = block{b.sum + blocks[n-1].sum, b.count + blocks[n-1].count}
			blocks = blocks[:n-1]
		}
		blocks = append(blocks, b)
		total += l.height()
	}
	above, i := 0.0, 0
	for _, b := range blocks {
		for range b.count {
			l := &labels[i]
			l.at = max(min(mean(b), bottom-total), top) + above + l.height()/2
			above += l.height()
			i++
		}
	}
}
