package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"slipway/e2e/world"
	"slipway/internal/deploy/screenshot"
)

// paintTime is the goal for the time from a click to the first paint.
const paintTime = 300 * time.Millisecond

// painter is a signed-in Chromium; nil if the host has none.
type painter struct {
	ctx  context.Context
	stop func()
	base string
}

// newPainter starts the host's browser with the reader's cookies.
func newPainter(ctx context.Context, r *reader) (*painter, error) {
	path := screenshot.Find("")
	if path == "" {
		return nil, nil
	}
	alloc, stop := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox)...)
	tab, stop2 := chromedp.NewContext(alloc, chromedp.WithErrorf(func(string, ...any) {}))
	p := &painter{tab, func() { stop2(); stop() }, r.base}
	at, err := url.Parse(r.base)
	if err != nil {
		return nil, err
	}
	err = chromedp.Run(tab, network.Enable(), chromedp.EmulateViewport(1280, 800), chromedp.ActionFunc(func(ctx context.Context) error {
		for _, c := range r.client.Jar.Cookies(at) {
			if err := network.SetCookie(c.Name, c.Value).WithURL(r.base).Do(ctx); err != nil {
				return err
			}
		}
		return nil
	}))
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("start browser: %w", err)
	}
	return p, nil
}

// paint opens a page several times and returns each time from the start of the navigation to the first contentful paint
// (PerformancePaintTiming), with shared assets in the browser's cache.
func (p *painter) paint(path string) (took []time.Duration, err error) {
	const script = `performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0`
	for range 5 {
		ctx, stop := context.WithTimeout(p.ctx, 30*time.Second)
		var ms float64
		err = chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) error {
			_, _, failed, _, err := page.Navigate(p.base + path).Do(ctx)
			if err == nil && failed != "" {
				err = fmt.Errorf("open %s: %s", path, failed)
			}
			return err
		}))
		if err == nil {
			err = world.Until(ctx, 10*time.Millisecond, func() (bool, error) {
				err := chromedp.Run(ctx, chromedp.Evaluate(`location.pathname + location.search === `+fmt.Sprintf("%q", path)+` ? `+script+` : 0`, &ms))
				return ms > 0, err
			})
		}
		stop()
		if err != nil {
			return nil, fmt.Errorf("first paint of %s: %w", path, err)
		}
		took = append(took, time.Duration(ms*float64(time.Millisecond)))
		if err := chromedp.Run(p.ctx, chromedp.Navigate("about:blank")); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// painted measures the first paint of a page, and whether it was late. A late page is measured again, up to twice.
func (p *painter) painted(path string) (text string, late bool, err error) {
	if p == nil {
		return "no browser", false, nil
	}
	best := time.Duration(-1)
	for try := 0; try < 3 && (best < 0 || best > paintTime); try++ {
		took, err := p.paint(path)
		if err != nil {
			return "", false, err
		}
		if half := quantile(took, .5); best < 0 || half < best {
			best = half
		}
	}
	return "first paint " + ms(best), best > paintTime, nil
}
