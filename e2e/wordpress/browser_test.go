//go:build browser

package wordpress

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"slipway/e2e/browser"
	"slipway/e2e/world"
)

// A real browser creates a WordPress in the dashboard, logs in with the dashboard's button, and writes and publishes a
// post with a picture in the editor. Visitors get the post from the page cache, and after a change the new version.
func TestBrowserPublishes(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := install(t)
	s := h.inDashboard()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("ignore-certificate-errors", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost, EXCLUDE *.localhost"))
	if p := browser.Path(); p != "" {
		opts = append(opts, chromedp.ExecPath(p))
	}
	alloc, stop := chromedp.NewExecAllocator(t.Context(), opts...)
	defer stop()
	ctx, stop := chromedp.NewContext(alloc, chromedp.WithErrorf(func(string, ...any) {}))
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	run := func(what string, actions ...chromedp.Action) {
		t.Helper()
		if err := chromedp.Run(ctx, actions...); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	var title string
	run(
		"sign in",
		chromedp.Navigate("http://"+h.Listen+"/sign-in"),
		chromedp.SendKeys("#f-email", "ada@example.test", chromedp.ByQuery),
		chromedp.SendKeys("#f-password", world.Password, chromedp.ByQuery),
		chromedp.Click(`[data-test="submit"]`, chromedp.ByQuery),
		chromedp.WaitVisible(`[data-test="cards"]`, chromedp.ByQuery),
	)
	run(
		"log in by the button",
		chromedp.Navigate("http://"+h.Listen+"/sites/"+s.ID+"/wordpress"),
		chromedp.WaitVisible(`[data-test="open-admin"]`, chromedp.ByQuery),
		chromedp.Evaluate(`document.querySelector('[data-test="open-admin"]').form.removeAttribute("target")`, nil), // the link opens a new tab
		chromedp.Click(`[data-test="open-admin"]`, chromedp.ByQuery),
		chromedp.WaitVisible("#wpadminbar", chromedp.ByQuery),
		chromedp.Title(&title),
	)
	if !strings.HasPrefix(title, "Dashboard") {
		t.Errorf("the button leads to %q", title)
	}
	await := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
	var out string
	run(
		"write a post",
		chromedp.Navigate(s.URL+"/wp-admin/post-new.php"),
		chromedp.Poll(
			`!!(window.wp && wp.data && wp.blocks && wp.data.select('core/editor') && wp.data.select('core/editor').getCurrentPostId() > 0 && wp.blocks.getBlockType('core/image'))`,
			nil,
		),
		chromedp.Evaluate(`(async () => {
			const canvas = document.createElement('canvas'); canvas.width = canvas.height = 8;
			const picture = await new Promise(done => canvas.toBlob(done, 'image/png'));
			const form = new FormData(); form.append('file', picture, 'drawn.png');
			const media = await wp.apiFetch({ path: '/wp/v2/media', method: 'POST', body: form });
			const { createBlock } = wp.blocks;
			wp.data.dispatch('core/block-editor').insertBlocks([createBlock('core/paragraph', { content: 'Written in a browser' }), createBlock('core/image', { id: media.id, url: media.source_url })]);
			wp.data.dispatch('core/editor').editPost({ title: 'From the browser', status: 'publish' });
			await wp.data.dispatch('core/editor').savePost();
			return JSON.stringify({ link: wp.data.select('core/editor').getPermalink(), image: media.source_url, status: wp.data.select('core/editor').getCurrentPost().status });
		})()`, &out, await),
	)
	var post struct{ Link, Image, Status string }
	ok(t, json.Unmarshal([]byte(out), &post))
	if post.Status != "publish" {
		t.Fatalf("the post is %s", out)
	}
	stranger := h.visitor(s.URL)
	if status, header, text := stranger.get(post.Link); status != 200 || header.Get("X-Cache") != "MISS" || !strings.Contains(
		text,
		"Written in a browser",
	) || !strings.Contains(text, post.Image) {
		t.Errorf("the post: %d %s", status, header.Get("X-Cache"))
	}
	if status, header, _ := stranger.get(post.Image); status != 200 || header.Get("Content-Type") != "image/png" {
		t.Errorf("its picture: %d", status)
	}
	h.until("the post is cached", func() bool { // the open editor may change something after it has saved
		_, header, _ := stranger.get(post.Link)
		return header.Get("X-Cache") == "HIT"
	})
	run(
		"change it",
		chromedp.Evaluate(
			`(async () => { wp.data.dispatch('core/editor').editPost({ title: 'Changed in the browser' }); await wp.data.dispatch('core/editor').savePost(); return ''; })()`,
			&out,
			await,
		),
	)
	h.renews(stranger, post.Link, "Changed in the browser")
}
