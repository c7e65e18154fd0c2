//go:build browser

package browser

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"slipway/e2e/world"
)

// Allow lets the window's pages send requests to the host of a URL.
func (w *Window) Allow(address string) {
	w.t.Helper()
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		w.t.Fatalf("%q has no host", address)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts[u.Host] = true
}

// Expect allows one response with this status. Chromium logs it to the console, which must otherwise stay empty.
func (w *Window) Expect(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected[status]++
}

// Refuses announces that the browser will block something and log a message with this word. Refused waits for the
// message.
func (w *Window) Refuses(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused[word] = 0
}

// Refused waits until the browser has logged a message with a word passed to Refuses.
func (w *Window) Refused(word string) {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.ctx, patience)
	defer stop()
	err := world.Until(ctx, 5*time.Millisecond, func() (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.refused[word] > 0, nil
	})
	if err != nil {
		w.fatal("the browser refuses nothing with the word %s: %v", word, err)
	}
}

var answered = regexp.MustCompile(`responded with a status of (\d+)`)

// watch records forbidden actions of pages, with which the test fails when it ends.
func (w *Window) watch() {
	w.t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, f := range w.faults {
			w.t.Error(f)
		}
	})
	chromedp.ListenTarget(w.ctx, func(ev any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch ev := ev.(type) {
		case *network.EventRequestWillBeSent:
			u, err := url.Parse(ev.Request.URL)
			if err != nil || u.Scheme != "data" && u.Scheme != "blob" && u.Scheme != "about" && !w.hosts[u.Host] {
				w.note("the page asks for %s", ev.Request.URL)
			}
		case *runtime.EventExceptionThrown:
			w.note("script error: %s", ev.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			w.note("console: %s %s", ev.Type, words(ev.Args))
		case *log.EventEntryAdded:
			if ev.Entry.Level != log.LevelWarning && ev.Entry.Level != log.LevelError {
				return
			}
			if m := answered.FindStringSubmatch(ev.Entry.Text); m != nil {
				status, _ := strconv.Atoi(m[1])
				if w.expected[status] > 0 {
					w.expected[status]--
					return
				}
				if status == 404 && strings.HasSuffix(ev.Entry.URL, "/follow") {
					return // the page reconnected its event stream while the resource was deleted
				}
			}
			w.note("browser: %s %s", ev.Entry.Text, ev.Entry.URL)
		case *audits.EventIssueAdded:
			if d := ev.Issue.Details.ContentSecurityPolicyIssueDetails; d != nil {
				w.note("Content-Security-Policy: %s %s", d.ViolatedDirective, d.BlockedURL)
			}
		case *page.EventJavascriptDialogOpening:
			w.note("a script opens a dialog: %s", ev.Message)
			go chromedp.Run(w.ctx,
				chromedp.ActionFunc(func(ctx context.Context) error { return page.HandleJavaScriptDialog(true).Do(ctx) }))
		}
	})
}

func (w *Window) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for word := range w.refused {
		if strings.Contains(text, word) {
			w.refused[word]++
			return
		}
	}
	w.faults = append(w.faults, text+" (at "+w.at+")")
}

func words(args []*runtime.RemoteObject) (text string) {
	for _, a := range args {
		text += " " + string(a.Value) + a.Description
	}
	return text
}
