package browsertest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/client"
)

// Texts that run a script or show a picture where they are taken for HTML. %s is who sent it.
const (
	scriptName  = `<script>window.ran='%s'</script>`            // may be a pool's name, which has no spaces and double quotes
	pictureName = `'><img/src=x/onerror=window.ran='%s'>`       // likewise
	pictureText = `"><img src=x onerror="window.ran='%s'">&lt;` // may be any text
)

// What peers and the configuration name is shown as the text that it is, and runs nothing.
func TestTextOfPeers(t *testing.T) {
	t.Parallel()
	s := startServer(t, fmt.Sprintf(`
pool: {vllm: "0.28.0", model_name: %q}
accept_pools: true
`, fmt.Sprintf(pictureText, "model")))
	names := []string{fmt.Sprintf(scriptName, "pool"), fmt.Sprintf(pictureName, "pool"), `\'&amp;']`}
	for _, name := range names {
		c := s.dial(client.WithPool(name, coordinator.Pool{VLLM: "0.28.0", ModelName: fmt.Sprintf(pictureText, "described")}))
		storePrompt(t, c, "p", 3)
	}
	s.send(fmt.Sprintf(scriptName, "bytes")) // no request

	b := openPage(t, s)
	for _, name := range names {
		b.until(shows("#pools", name))
		b.until(shows("#connections", name))
		b.until(fmt.Sprintf(`[...document.querySelectorAll("#pools tr[data-pool]")].some(row => row.dataset.pool == %q)`, name))
		b.until(fmt.Sprintf(`[...document.querySelectorAll("#explain-pool option")].some(option => option.value == %q)`, name))
	}
	b.until(`/Stored\s+9\b/.test(document.querySelector("#backend").innerText)`) // in all pools
	// The server lists one of the refusals that come close together.
	for _, refused := range []struct {
		shown  string
		option client.Option
	}{
		{fmt.Sprintf(scriptName, "refused"), client.WithPoolName(fmt.Sprintf(scriptName, "refused"))},
		{"img src=x onerror", client.WithPool(names[0], coordinator.Pool{VLLM: "0.28.0", ModelName: fmt.Sprintf(pictureText, "differs")})},
	} {
		b.untilBy(shows("#refusals", refused.shown), func() {
			if _, err := client.Dial(t.Context(), s.address, refused.option); !errors.Is(err, client.ErrRefused) {
				t.Fatalf("a pool that is to be refused: %v", err)
			}
		})
	}
	b.fill("#explain-pool", names[0])
	b.fill("#explain-tokens", "48")
	b.explain(hexLines(prompt("p", 3)))
	b.until(shows("#explain-result", "48"))
	b.update()
	b.until(`window.ran === undefined`)
	b.until(`document.querySelectorAll("script").length == 1`)
	b.until(`document.querySelectorAll("img, iframe, object, embed, a[href^='javascript:']").length == 0`)
}
