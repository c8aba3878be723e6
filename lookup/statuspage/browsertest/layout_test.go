package browsertest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// emulate sets prefers-color-scheme to light or dark.
func (b *tab) emulate(scheme string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

// On a narrow phone nothing is wider than the window, whatever the names and numbers are.
func TestNarrowWindow(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	s := startBusyServer(t)
	b.do(chromedp.EmulateViewport(360, 640, chromedp.EmulateMobile))
	b.open(servePast(t, s))
	b.until(shows("#connections", "llama"))
	b.explainMissing()
	// What may be scrolled by itself, as a table, is not looked into.
	const wide = `(function wide(element) {
		const overflow = getComputedStyle(element).overflowX
		const found = element.getBoundingClientRect().right > 360.5 ? [element.tagName + "#" + element.id + "." + element.className] : []
		return overflow == "auto" || overflow == "scroll" || overflow == "hidden" ? found : found.concat(...[...element.children].map(wide))
	})(document.body)`
	for range 2 {
		if found := eval[[]string](b, wide); len(found) > 0 {
			t.Errorf("wider than the window: %q", found)
		}
		if width := eval[float64](b, `Math.max(document.documentElement.scrollWidth, innerWidth)`); width > 360 {
			t.Errorf("the page is %v pixels wide", width)
		}
		b.update()
	}
	// A finger hits what is 24 pixels large.
	if small := eval[[]string](b, `[...document.querySelectorAll("button, input, select, textarea, summary")]
		.filter(e => e.offsetParent && e.getBoundingClientRect().height < 24).map(e => e.outerHTML)`); len(small) > 0 {
		t.Errorf("too small: %q", small)
	}
}

// Light and dark pages differ, and all texts of both have the contrast that WCAG 2 wants (AA).
func TestColours(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	s := startBusyServer(t)
	backgrounds := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		b.emulate(scheme)
		b.open(servePast(t, s))
		b.until(shows("#connections", "llama"))
		b.explainMissing()
		backgrounds[scheme] = eval[string](b, `getComputedStyle(document.body).backgroundColor`)
		b.checkContrast()
	}
	if backgrounds["light"] == backgrounds["dark"] {
		t.Errorf("light and dark have one background: %v", backgrounds)
	}
}

// checkContrast fails the test for texts that are hard to read.
func (b *tab) checkContrast() {
	b.t.Helper()
	if faint := eval[[]string](b, faintTexts); len(faint) > 0 {
		b.t.Errorf("too little contrast: %s", strings.Join(faint, "\n"))
	}
}

// faintTexts lists the texts whose contrast with what is behind them is below 4.5. A canvas tells
// colours in any notation as red, green and blue. Behind everything is what Chromium has there.
const faintTexts = `(() => {
	const context = document.createElement("canvas").getContext("2d", {willReadFrequently: true})
	const paint = (colours, last, opacity) => {
		colours.concat(last).forEach((colour, i) => {
			context.globalAlpha = i < colours.length ? 1 : opacity
			context.fillStyle = colour
			context.fillRect(0, 0, 1, 1)
		})
		return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3)
	}
	const luminance = rgb => {
		const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		return 0.2126 * r + 0.7152 * g + 0.0722 * b
	}
	const behind = element => {
		const colours = []
		for (let e = element; e; e = e.parentElement) colours.unshift(getComputedStyle(e).backgroundColor)
		return [matchMedia("(prefers-color-scheme: dark)").matches ? "#121212" : "white", ...colours]
	}
	const faint = []
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	while (texts.nextNode()) {
		const element = texts.currentNode.parentElement
		if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.matches("script, style, :disabled")) continue
		const style = getComputedStyle(element)
		let opacity = 1
		for (let e = element; e; e = e.parentElement) opacity *= getComputedStyle(e).opacity
		const back = luminance(paint(behind(element), "transparent", 1))
		const text = luminance(paint(behind(element), element instanceof SVGElement ? style.fill : style.color, opacity))
		const contrast = (Math.max(back, text) + 0.05) / (Math.min(back, text) + 0.05)
		if (contrast < 4.5) faint.push(contrast.toFixed(2) + " " + element.outerHTML.slice(0, 200))
	}
	return faint
})()`

// explainMissing asks for an explanation of a prompt of which a part is stored.
func (b *tab) explainMissing() {
	b.t.Helper()
	b.fill("#explain-tokens", fmt.Sprint(40*blockSize))
	b.explain(hexLines(prompt("system", 40)))
	b.until(`document.querySelector("#explain-result").innerText.trim()`)
}
