package browsertest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// browser returns the context of Chromium, which all tests share. It is started by the first that asks.
var browser = sync.OnceValues(startBrowser)

// stopBrowser ends Chromium if it was started, and waits for it.
var stopBrowser = func() {}

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests mostly wait for the next update of a page, so more of them run at a time than there are CPUs.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	status := m.Run()
	stopBrowser()
	removeProgram()
	os.Exit(status)
}

// startBrowser starts Chromium with a new profile. It can reach nothing but this machine.
func startBrowser() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path)}
	for _, flag := range []string{
		"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync", "hide-scrollbars",
		"disable-background-networking", "disable-component-update", "disable-default-apps", "disable-extensions",
		"disable-dev-shm-usage", // containers have little of it
		// All tabs are in the background, and are to refresh as if they were not.
		"disable-background-timer-throttling", "disable-backgrounding-occluded-windows", "disable-renderer-backgrounding",
	} {
		options = append(options, chromedp.Flag(flag, true))
	}
	options = append(options, chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.*"))
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	stopBrowser = func() {
		cancel() // waits until Chromium has ended
		cancelAllocator()
	}
	if err := chromedp.Do(ctx); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", path, err)
	}
	return ctx, nil
}

// requireBrowser returns the context of Chromium. Where there is none the test is skipped, with
// CI=true it fails.
func requireBrowser(t *testing.T) context.Context {
	t.Helper()
	ctx, err := browser()
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}
