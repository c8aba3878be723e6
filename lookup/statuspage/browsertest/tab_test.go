package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

const (
	// timeout bounds each wait. It is long, so that no slow machine reaches it.
	timeout = 60 * time.Second
	// pollInterval is the time between two looks at a page.
	pollInterval = 20 * time.Millisecond
)

// tab is a page in a tab with a profile of its own.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string // of the page, the only one that may be asked for anything

	mu       sync.Mutex
	expected []string // texts of problems that are none
	problems []string
}

// newTab returns an empty tab. The test fails at its end if there was a problem in the tab: an entry
// in the console, an exception, a request to another origin, one that the content security policy
// blocked, a dialog, or what the browser finds wrong with the page.
func newTab(t *testing.T) *tab {
	t.Helper()
	b := &tab{t: t}
	ctx, cancel := chromedp.NewContext(requireBrowser(t), chromedp.WithNewBrowserContext(), chromedp.WithListener(b.record))
	b.ctx = ctx
	t.Cleanup(func() {
		b.check()
		cancel()
	})
	if err := chromedp.Do(ctx); err != nil { // without a deadline, which would be that of the tab
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, audits.Enable, cdp.Empty{}); err != nil { // chromedp asks for the other events
		t.Fatal(err)
	}
	return b
}

// open goes to a page and waits until it is loaded.
func (b *tab) open(address string) {
	b.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	b.origin = u.Scheme + "://" + u.Host
	b.mu.Unlock()
	b.do(chromedp.Navigate(address))
}

// expect says that problems with one of these texts are none, from now on.
func (b *tab) expect(texts ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, texts...)
}

// record gets all events of the tab, in their order.
func (b *tab) record(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		var args []string
		for _, a := range e.Args {
			args = append(args, string(a.Value)+a.Description)
		}
		b.add("console %s: %s", e.Type, strings.Join(args, " "))
	case *runtime.EventExceptionThrown:
		b.add("exception: %s %s", e.ExceptionDetails.Text, describe(e.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelWarning || e.Entry.Level == log.EntryLevelError {
			b.add("log %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, b.origin+"/") {
			b.add("request to elsewhere: %s", e.Request.URL)
		}
	case *network.EventWebSocketCreated:
		b.add("request to elsewhere: %s", e.URL)
	case *audits.EventIssueAdded:
		b.add("issue: %s", issueText(e.Issue))
	case *page.EventJavascriptDialogOpening:
		b.add("dialog: %s", e.Message)
		go b.closeDialog()
	}
}

func (b *tab) closeDialog() {
	_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
}

func describe(o *runtime.RemoteObject) string {
	if o == nil {
		return ""
	}
	return string(o.Value) + o.Description
}

// issueText returns an issue as the protocol has it, which names what is wrong and where.
func issueText(issue *audits.InspectorIssue) string {
	details, err := json.Marshal(issue.Details)
	if err != nil {
		return err.Error()
	}
	return string(issue.Code) + " " + string(details)
}

// add notes a problem, unless it is expected.
func (b *tab) add(format string, args ...any) {
	problem := fmt.Sprintf(format, args...)
	for _, text := range b.expected {
		if strings.Contains(problem, text) {
			return
		}
	}
	b.problems = append(b.problems, problem)
}

// take returns the problems since it was last called.
func (b *tab) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	problems := b.problems
	b.problems = nil
	return problems
}

// check fails the test for each problem.
func (b *tab) check() {
	b.t.Helper()
	for _, problem := range b.take() {
		b.t.Error(problem)
	}
}

// do runs actions one after the other.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	run(b, chromedp.Steps(actions...))
}

// run returns the value of an action, or fails the test.
func run[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatalf("%v\nproblems: %q", err, b.take())
	}
	return v
}

// eval returns the value of a JavaScript expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression))
}

// until waits until a JavaScript expression is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	b.untilBy(expression, func() {})
}

// untilBy waits until a JavaScript expression is true, and calls try each time that it is not.
func (b *tab) untilBy(expression string, try func()) {
	b.t.Helper()
	for deadline := time.Now().Add(timeout); !eval[bool](b, "!!("+expression+")"); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			b.t.Fatalf("after %v not yet: %s\nthe page: %s\nproblems: %q", timeout, expression,
				eval[string](b, `document.body.dataset.state + "\n" + document.body.innerText`), b.take())
		}
		try()
	}
}
