package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/tenant/stripe/stripetest"
)

// A customer chooses a plan over the API, stores a card, is charged, and can create as many sites as the plan includes.
// A larger plan allows more. Stripe's events arrive twice and in reverse order.
func TestPaidPlan(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	away := stripetest.New()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: away}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	away.URL, away.Key = "http://"+listener.Addr().String(), "rk_test_0123456789"
	w.Flags = append(w.Flags, "--billing", "--stripe-api", away.URL)
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience(time.Minute))
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\nthe program's last words:\n%s", err, w.Log(2000))
		}
	}
	check(w.Start(ctx))
	key, err := w.User("ada@example.test")
	check(err)
	cli := func(input string, args ...string) string {
		t.Helper()
		out, err := w.CLI(input, args...)
		if err != nil {
			t.Fatal(out, err)
		}
		return out
	}
	const secret = "whsec_0123456789abcdef"
	cli(`{"seller": {"name": "Acme Hosting", "country": "DE"}, "taxes": {"DE": 1900}}`, "billing", "settings", "-")
	for _, p := range []struct {
		name          string
		amount, sites int
	}{{"one", 1000, 1}, {"many", 5000, 100}} {
		cli(fmt.Sprintf(`{"plan": %q, "title": "Plan", "currency": "EUR", "interval": "month", "amount": %d, "public": true, "limits": {"sites": %d}}`, p.name, p.amount, p.sites),
			"billing", "publish", "-")
	}
	hook := regexp.MustCompile(`/hooks/stripe/sta_\w+`).FindString(cli(away.Key, "billing", "stripe", "connect", "-"))
	cli(secret, "billing", "stripe", "secret", "-")
	sent := 0
	deliver := func() {
		t.Helper()
		events := away.All("evt")[sent:]
		sent += len(events)
		for n := range 2 * len(events) {
			body := stripetest.Event(events[len(events)-1-n/2])
			answer, err := w.Do(ctx, world.Request{
				Method: "POST", URL: "http://" + w.Listen + hook, Body: body,
				Header: http.Header{"Stripe-Signature": {stripetest.Sign(body, secret, time.Now())}},
			})
			check(errors.Join(err, answer.Err()))
		}
	}
	until := func(path, text string) {
		t.Helper()
		check(world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
			answer, err := w.Do(ctx, world.Request{Method: "GET", Path: path, Key: key})
			return err == nil && strings.Contains(string(answer.Body), text), fmt.Errorf("GET %s: %v, %s", path, err, answer.Body)
		}))
	}

	answer, err := w.Do(ctx, world.Request{Method: "POST", Path: "/subscription", Key: key, Body: map[string]any{"plan": "one"}})
	if err != nil || answer.Status != 409 || !strings.Contains(string(answer.Body), "payment_method_required") {
		t.Fatalf("without a card: %d %s %v", answer.Status, answer.Body, err)
	}
	var page struct{ URL string }
	check(w.Call(ctx, key, "POST", "/billing/payment-method", map[string]any{"subscribe": map[string]any{"plan": "one"}}, &page))
	check(away.Enter(filepath.Base(page.URL), stripetest.Fine))
	deliver()
	until("/subscription", `"status":"active"`)
	until("/invoices", `"status":"paid"`)
	deliver() // the payment's event

	check(world.WriteFiles(filepath.Join(w.Dir, "content"), map[string]string{"index.html": "<h1>paid for</h1>"}))
	_, err = w.Git.Commit("acme/site", "main", filepath.Join(w.Dir, "content"), "a commit")
	check(err)
	create := func(name string) (answer world.Answer) {
		t.Helper()
		answer, err := w.Do(ctx, world.Request{Method: "POST", Path: "/sites", Key: key, Body: map[string]any{"name": name, "type": "static", "repository": "git.test/acme/site"}})
		check(err)
		return answer
	}
	var site struct{ Data struct{ URL string } }
	first := create("first")
	check(first.Err())
	check(first.JSON(&site))
	browser, err := w.Browser()
	check(err)
	check(world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		answer, err := w.Site(ctx, browser, world.Request{Method: "GET", URL: site.Data.URL + "/"})
		return err == nil && strings.Contains(string(answer.Body), "paid for"), fmt.Errorf("GET %s: %v, %d", site.Data.URL, err, answer.Status)
	}))
	if second := create("second"); second.Status != 402 || !strings.Contains(string(second.Body), `"many"`) {
		t.Errorf("beyond the plan: %d %s", second.Status, second.Body)
	}
	check(w.Call(ctx, key, "PATCH", "/subscription", map[string]any{"plan": "many"}, nil))
	check(create("second").Err())
	check(world.Until(ctx, 50*time.Millisecond, func() (bool, error) { // the price difference is charged
		n := away.Captured()
		return n > 1190, fmt.Errorf("%d were captured", n)
	}))
	deliver()
	var invoices struct {
		Data []struct {
			Status string
			Total  struct{ Amount int64 }
		}
	}
	check(world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		if err := w.Call(ctx, key, "GET", "/invoices", nil, &invoices); err != nil {
			return false, err
		}
		sum := int64(0)
		for _, i := range invoices.Data {
			if i.Status != "paid" {
				return false, fmt.Errorf("%+v", invoices)
			}
			sum += i.Total.Amount
		}
		return len(invoices.Data) == 2 && sum == away.Captured(), fmt.Errorf("%+v, and %d were captured", invoices, away.Captured())
	}))
	cli("", "billing", "check")
	cli("", "billing", "recompute")
	// Neither the log nor a stored file, which backups would copy, contains a secret of Stripe's.
	if strings.Contains(w.Log(1<<20), away.Key) || strings.Contains(w.Log(1<<20), secret) {
		t.Error("the log contains a secret of Stripe's")
	}
	read := false
	check(filepath.WalkDir(w.Dir, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !e.Type().IsRegular() { // the program changes files at the same time
			return nil
		}
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		read = read || filepath.Ext(name) == ".db"
		if strings.Contains(string(text), away.Key) || strings.Contains(string(text), secret) {
			t.Errorf("%s has a secret of Stripe's", name)
		}
		return err
	}))
	if !read {
		t.Error("the database was not read")
	}
}
