package browsertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// The form is reached, filled and sent by the keyboard. Updates of the page leave the focus and what is
// written where they are, and each element shows that it has the focus.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	b := openPage(t, s)
	storePrompt(t, s.dial(), "p", 2)
	var reached []string
	focus := func(selector string) {
		t.Helper()
		for range 100 { // more than there are
			b.do(chromedp.KeyEvent(kb.Tab))
			at := eval[focused](b, fmt.Sprintf(focusedElement, selector))
			if reached = append(reached, at.Name); !at.Visible {
				t.Errorf("nothing shows the focus of %s", at.Name)
			}
			if at.Found {
				return
			}
		}
		t.Fatalf("%s is not reached by Tab, but %q", selector, reached)
	}
	focus("#explain-pool")
	focus("#explain-tokens")
	b.do(chromedp.KeyEvent("48"))
	focus("#explain-hashes")
	b.write(strings.Join(strings.Fields(hexLines(prompt("p", 3))), ","))
	b.update()
	b.until(`document.activeElement.id == "explain-hashes" && document.activeElement.value.length == 3 * 64 + 2`)
	focus("#explain button[type=submit]")
	b.do(chromedp.KeyEvent(" "))
	b.until(shows("#explain-result", "32"))
	b.update()
	b.until(shows("#explain-result", "32"))
	b.until(`document.activeElement.matches("#explain button, #explain-result, #explain-result *")`)
}

// write writes where the focus is, at once, as a paste does.
func (b *tab) write(text string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, input.InsertText, input.InsertTextParams{Text: text}); err != nil {
		b.t.Fatal(err)
	}
}

// focused is the element that has the focus.
type focused struct {
	Name    string `json:"name"`
	Visible bool   `json:"visible"` // it has an outline or a shadow
	Found   bool   `json:"found"`   // it is what is looked for
}

// focusedElement returns it, and looks for a selector.
const focusedElement = `((element, style) => ({
	name: element.tagName + "#" + element.id,
	visible: style.outlineStyle != "none" && style.outlineWidth != "0px" || style.boxShadow != "none",
	found: element.matches(%q),
}))(document.activeElement, getComputedStyle(document.activeElement))`

// The tree that screen readers get has a language, headings in order, and names of fields, buttons and
// tables. What changes by itself is not read out again and again.
func TestAccessibilityTree(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	s := startBusyServer(t)
	b.open(servePast(t, s))
	b.until(shows("#connections", "llama"))
	b.explainMissing()
	var tree accessibility.GetFullAXTreeResult
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) (err error) {
		tree, err = cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		return err
	}))
	count := map[string]int{}
	level := 0
	for _, node := range tree.Nodes {
		role := text(node.Role)
		if node.Ignored {
			continue
		}
		count[role]++
		if slices.Contains([]string{"textbox", "spinbutton", "combobox", "button", "link", "table", "image", "heading"}, role) && text(node.Name) == "" {
			t.Errorf("a %s has no name: %s", role, b.describe(node.BackendDOMNodeID))
		}
		for _, p := range node.Properties {
			if p.Name != "level" || role != "heading" {
				continue
			}
			var next int
			_, _ = fmt.Sscan(text(p.Value), &next)
			if next > level+1 || next < 1 {
				t.Errorf("the heading %q of level %d comes after one of level %d", text(node.Name), next, level)
			}
			level = next
		}
	}
	for role, n := range map[string]int{"main": 1, "heading": 5, "table": 3, "columnheader": 10, "textbox": 1} {
		if count[role] < n {
			t.Errorf("%d of the role %s, at least %d: %v", count[role], role, n, count)
		}
	}
	for _, expression := range []string{
		`document.documentElement.lang == "en"`,
		`document.title.includes("hitline")`,
		`document.querySelectorAll("h1").length == 1`,
		`[...document.querySelectorAll("table")].every(table => table.caption)`,
		`[...document.querySelectorAll("th")].every(th => th.scope || th.closest("thead"))`,
		`!document.querySelector("#updated").closest("[aria-live=polite], [aria-live=assertive], [role=status], [role=alert]")`,
		`!document.querySelector("#uptime").closest("[aria-live=polite], [aria-live=assertive], [role=status], [role=alert]")`,
		`document.querySelector("#explain-result").closest("[aria-live=polite], [aria-live=assertive], [role=status], output")`,
		`document.querySelector("#ready").closest("[aria-live=polite], [aria-live=assertive], [role=status], [role=alert], output")`,
	} {
		if !eval[bool](b, "!!("+expression+")") {
			t.Errorf("not so: %s", expression)
		}
	}
}

// describe returns the HTML of an element, or why there is none.
func (b *tab) describe(id cdp.BackendNodeID) string {
	node, err := chromedp.Call(b.ctx, dom.GetOuterHTML, dom.GetOuterHTMLParams{BackendNodeID: id})
	if err != nil {
		return err.Error()
	}
	return node.OuterHTML
}

// text returns a value of the accessibility tree.
func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `"`)
}
