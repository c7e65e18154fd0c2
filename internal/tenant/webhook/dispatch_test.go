package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/webhook/event"
)

// trip is a RoundTripper that needs no network.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, header ...string) (*http.Response, error) {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(bytes.NewReader(nil))}, nil
}

// timeless returns Webhooks for a synctest bubble. It always uses SQLite, because a network connection would stop the
// bubble's clock.
func timeless(t *testing.T, out trip) *Webhooks {
	t.Helper()
	return newWebhooks(t, dbtest.Bubble(t), nil, func(c *Config) {
		c.Out = &http.Client{Transport: out}
		c.Poll, c.Lease, c.Keep = time.Hour, 24*time.Hour, 365*24*time.Hour
	})
}

// A delivery gets ten attempts within about 75 h 35 min.
func TestSchedule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		var bodies, ids []string
		w := timeless(t, func(r *http.Request) (*http.Response, error) {
			b, _ := io.ReadAll(r.Body)
			at, bodies, ids = append(at, time.Now()), append(bodies, string(b)), append(ids, r.Header.Get("Webhook-Id"))
			return answer(500)
		})
		h := create(t, w, "https://example.test/", "site.created")
		stop := start(t, w)
		emit(t, w, event.SiteCreated(someSite))
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		stop()
		if len(at) != 10 {
			t.Fatalf("%d attempts, want 10", len(at))
		}
		for i, want := range schedule {
			if got := at[i+1].Sub(at[i]); got < want*9/10-10*time.Millisecond || got > want*11/10+10*time.Millisecond {
				t.Errorf("attempt %d came %s after the one before, want %s ± 10 %%", i+2, got, want)
			}
		}
		if len(slices.Compact(bodies)) != 1 || len(slices.Compact(ids)) != 1 {
			t.Errorf("attempts differ: %v %v", bodies, ids)
		}
		list, _, err := w.Deliveries(t.Context(), anna, h.ID, 1, 1)
		if err != nil || list[0].State != "failed" || len(list[0].Attempts) != 10 || list[0].FinishedAt == 0 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status   int
		value    func() string
		min, max time.Duration
	}{
		"none":    {503, func() string { return "" }, 4500 * time.Millisecond, 5500 * time.Millisecond},
		"seconds": {503, func() string { return "120" }, 2 * time.Minute, 2*time.Minute + time.Second},
		"date": {
			429,
			func() string { return time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat) },
			10*time.Minute - time.Second,
			10*time.Minute + time.Second,
		},
		"sooner than we":     {429, func() string { return "1" }, 4500 * time.Millisecond, 5500 * time.Millisecond},
		"later than a day":   {503, func() string { return "9999999" }, 24 * time.Hour, 24*time.Hour + time.Second},
		"overflow":           {503, func() string { return "99999999999999999999" }, 4500 * time.Millisecond, 5500 * time.Millisecond},
		"negative":           {503, func() string { return "-5" }, 4500 * time.Millisecond, 5500 * time.Millisecond},
		"nonsense":           {503, func() string { return "soon" }, 4500 * time.Millisecond, 5500 * time.Millisecond},
		"on a success later": {500, func() string { return "60" }, time.Minute, time.Minute + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				w := timeless(t, func(r *http.Request) (*http.Response, error) {
					if at = append(at, time.Now()); len(at) > 1 {
						return answer(200)
					}
					return answer(tt.status, "Retry-After", tt.value())
				})
				create(t, w, "https://example.test/", "site.created")
				stop := start(t, w)
				emit(t, w, event.SiteCreated(someSite))
				time.Sleep(26 * time.Hour)
				synctest.Wait()
				stop()
				if len(at) != 2 {
					t.Fatalf("%d attempts, want 2", len(at))
				}
				if got := at[1].Sub(at[0]); got < tt.min || got > tt.max {
					t.Errorf("the second attempt came after %s, want %s to %s", got, tt.min, tt.max)
				}
			})
		})
	}
}

// A Retry-After pauses all deliveries to that endpoint, and others continue.
func TestCoolDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		at := map[string][]time.Time{}
		w := timeless(t, func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			at[r.URL.Host] = append(at[r.URL.Host], time.Now())
			if r.URL.Host == "busy.test" && len(at["busy.test"]) == 1 {
				return answer(429, "Retry-After", "60")
			}
			return answer(200)
		})
		create(t, w, "https://busy.test/", "site.created")
		create(t, w, "https://idle.test/", "site.created")
		stop := start(t, w)
		began := time.Now()
		emit(t, w, event.SiteCreated(someSite))
		synctest.Wait()
		emit(t, w, event.SiteCreated(someSite), event.SiteCreated(someSite))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		mu.Lock()
		if len(at["busy.test"]) != 1 || len(at["idle.test"]) != 3 {
			t.Errorf("after 30 s: %d and %d requests", len(at["busy.test"]), len(at["idle.test"]))
		}
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		stop()
		if got := at["busy.test"]; len(got) != 4 || got[1].Sub(began) < time.Minute {
			t.Errorf("after 90 s: %v", got)
		}
	})
}

// A hundred endpoints that never answer delay no other endpoint, and each has at most four requests in flight.
func TestHangingEndpoints(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now, most := map[string]int{}, 0
	hang := func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		now[r.URL.Path]++
		most = max(most, now[r.URL.Path])
		mu.Unlock()
		defer func() { mu.Lock(); now[r.URL.Path]--; mu.Unlock() }()
		if r.URL.Path != "/healthy" {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		return answer(200)
	}
	w := newWebhooks(t, dbtest.New(t), nil, func(c *Config) {
		c.Out, c.Drain = &http.Client{Transport: trip(hang)}, 10*time.Millisecond
	})
	for i := range 99 {
		create(t, w, fmt.Sprintf("https://example.test/hang%d", i), "site.updated")
	}
	healthy := create(t, w, "https://example.test/healthy", "site.updated", "site.created")
	stop := start(t, w)
	for range 8 {
		emit(t, w, event.SiteUpdated(someSite))
	}
	for range 20 {
		emit(t, w, event.SiteCreated(someSite))
	}
	deadline := time.Now().Add(time.Minute)
	for {
		var n int
		if err := w.c.DB.QueryRow(
			t.Context(),
			`SELECT count(*) FROM webhook_deliveries WHERE hook_id = $1 AND state = 'succeeded'`,
			healthy.ID,
		).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n == 28 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("only %d of 28 delivered", n)
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	mu.Lock()
	defer mu.Unlock()
	if most > maxInFlight {
		t.Errorf("%d requests in flight at one endpoint", most)
	}
	if n := count(t, w, "webhook_attempts"); n != 28 {
		t.Errorf("%d attempts on record, want 28: abandoned ones don't count", n)
	}
	var leased int
	w.c.DB.QueryRow(context.Background(), `SELECT count(*) FROM webhook_deliveries WHERE state = 'leased'`).Scan(&leased)
	if leased != 0 {
		t.Errorf("%d deliveries are still leased after Run", leased)
	}
}

// The deliveries of a dispatcher that crashed are made again with the same bytes and ID. Results that the old
// dispatcher still reports are ignored.
func TestTakeover(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	d := dbtest.New(t)
	w := newWebhooks(t, d, r, func(c *Config) {
		c.Lease = time.Second
		if d.Single() {
			c.Lease = time.Hour // the test doesn't wait for its end
		}
	})
	h := create(t, w, r.URL, "site.created")
	emit(t, w, event.SiteCreated(someSite))
	flights, _, err := w.turn(t.Context(), nil, 10) // what a process does just before it is killed
	if err != nil || len(flights) != 1 {
		t.Fatalf("%v, %v", flights, err)
	}
	if err := readEvents(t.Context(), d, flights); err != nil {
		t.Fatal(err)
	}
	dead := w.send(t.Context(), flights[0])
	start(t, w) // on SQLite at once, on PostgreSQL when the lease ends
	first := settle(t, w, h.ID, func(d Delivery) bool { return d.State == "succeeded" })
	got := r.wait(t, 2)
	if got[0].body != got[1].body || got[0].header.Get("Webhook-Id") != got[1].header.Get("Webhook-Id") ||
		got[1].header.Get("X-Service-Attempt") != "2" {
		t.Errorf("the second request differs: %+v", got)
	}
	dead.Status = 500
	if _, _, err := w.turn(t.Context(), []outcome{dead}, 0); err != nil {
		t.Fatal(err)
	}
	again := settle(t, w, h.ID, tried(2))
	if again.State != "succeeded" || again.FinishedAt != first.FinishedAt || !again.Attempts[0].Late || again.Attempts[1].Late {
		t.Errorf("after the late report: %+v", again)
	}
	if h, _ := w.Get(t.Context(), anna, h.ID); h.FailingSince != 0 {
		t.Error("the late report spoilt the endpoint's health")
	}
}

// Another node takes over a dead node's deliveries within 30 seconds, and no attempt outlasts its lease.
func TestLeaseIsShort(t *testing.T) {
	t.Parallel()
	c := New(Config{}).c
	if late := c.Lease + leaseCheck(c.Lease); late > 29*time.Second {
		t.Errorf("a dead node's deliveries are found after %s, want less than 30 s", late)
	}
	if left := c.Lease - c.Timeout; left < 5*time.Second {
		t.Errorf("an attempt that takes its whole time leaves %s to write its outcome", left)
	}
}

// Two nodes share the deliveries and send none twice.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	if os.Getenv("SLIPWAY_TEST_DSN") == "" {
		t.Skip("SQLite serves one process")
	}
	url := dbtest.URL(t)
	var sent atomic.Int64
	var mu sync.Mutex
	now, most := 0, 0
	out := trip(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		now--
		mu.Unlock()
		sent.Add(1)
		return answer(200)
	})
	a := newWebhooks(t, dbtest.Open(t, url), nil, func(c *Config) { c.Out = &http.Client{Transport: out} })
	b := New(Config{DB: dbtest.Open(t, url), Seal: a.c.Seal, Out: a.c.Out})
	h := create(t, a, "https://example.test/", "site.created")
	start(t, a)
	start(t, b)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				emit(t, a, event.SiteCreated(someSite))
			}
		})
	}
	all.Wait()
	deadline := time.Now().Add(time.Minute)
	for {
		var n int
		if err := a.c.DB.QueryRow(
			t.Context(),
			`SELECT count(*) FROM webhook_deliveries WHERE hook_id = $1 AND state = 'succeeded'`,
			h.ID,
		).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("only %d of 200 delivered", n)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if sent.Load() != 200 || most > maxInFlight {
		t.Errorf("%d requests, at most %d at once", sent.Load(), most)
	}
}

func TestRepairTurns(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	w := newWebhooks(t, dbtest.New(t), r, nil)
	h := create(t, w, r.URL, "site.created")
	emit(t, w, event.SiteCreated(someSite))
	err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE webhooks SET turn_at = $1`, int64(never))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, w)
	if err := w.repairTurns(t.Context()); err != nil {
		t.Fatal(err)
	}
	settle(t, w, h.ID, func(d Delivery) bool { return d.State == "succeeded" })
}

// BenchmarkDeliver measures from the event to the stored result, against TLS receivers on loopback in the same process.
func BenchmarkDeliver(b *testing.B) {
	for _, endpoints := range []int{1, 50} {
		b.Run(fmt.Sprintf("endpoints=%d", endpoints), func(b *testing.B) {
			r := receive(b, nil)
			w := newWebhooks(b, dbtest.New(b), r, nil)
			for i := range endpoints {
				create(b, w, fmt.Sprintf("%s/%d", r.URL, i), "site.created")
			}
			before, began := processor(b), time.Now()
			start(b, w)
			for b.Loop() {
				emit(b, w, event.SiteCreated(someSite))
			}
			for {
				var n int
				if err := w.c.DB.QueryRow(
					b.Context(),
					`SELECT count(*) FROM webhook_deliveries WHERE state <> 'succeeded'`,
				).Scan(&n); err != nil {
					b.Fatal(err)
				}
				if n == 0 {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			b.ReportMetric(float64(b.N*endpoints)/time.Since(began).Seconds(), "deliveries/s")
			b.ReportMetric(float64((processor(b)-before).Microseconds())/float64(b.N*endpoints), "cpu-µs/delivery")
		})
	}
}

// BenchmarkPending measures the time from the dispatcher's start until all pending deliveries to 50 endpoints are
// stored as delivered.
func BenchmarkPending(b *testing.B) {
	const endpoints = 50
	r := receive(b, nil)
	w := newWebhooks(b, dbtest.New(b), r, nil)
	for i := range endpoints {
		create(b, w, fmt.Sprintf("%s/%d", r.URL, i), "site.created")
	}
	n := max(b.N/endpoints, 1)
	for range n {
		emit(b, w, event.SiteCreated(someSite))
	}
	b.ResetTimer()
	before, began := processor(b), time.Now()
	stop := start(b, w)
	for r.count() < n*endpoints {
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	b.ReportMetric(float64(n*endpoints)/time.Since(began).Seconds(), "deliveries/s")
	b.ReportMetric(float64((processor(b)-before).Microseconds())/float64(n*endpoints), "cpu-µs/delivery")
	if left := count(b, w, "webhook_deliveries WHERE state <> 'succeeded'"); left != 0 {
		b.Errorf("%d deliveries are not stored as delivered", left)
	}
}

// processor returns the CPU time of this process, including the receivers.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFirstAttempt measures from an event's commit to its arrival.
func BenchmarkFirstAttempt(b *testing.B) {
	r := receive(b, nil)
	w := newWebhooks(b, dbtest.New(b), r, nil)
	create(b, w, r.URL, "site.created")
	start(b, w)
	var took []time.Duration
	for b.Loop() {
		emit(b, w, event.SiteCreated(someSite))
		began := time.Now()
		got := r.wait(b, len(took)+1)
		took = append(took, got[len(got)-1].at.Sub(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
