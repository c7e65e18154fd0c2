package visits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/id"
	"slipway/internal/platform/visit"
)

type recorder func(ctx context.Context, b visit.Batch, group []visit.Counts) error

func (f recorder) Record(ctx context.Context, b visit.Batch, group []visit.Counts) error {
	return f(ctx, b, group)
}

// numbers formats the counts that tests compare.
func numbers(v visit.Counts) string { return fmt.Sprint(v.Classes, v.Pages, v.Bytes) }

// Counts from before the end are recorded at the end, in groups.
func TestAtTheEnd(t *testing.T) {
	t.Parallel()
	bySite, most := map[id.Site]visit.Counts{}, 0
	l := New(Config{Every: time.Hour, Recorder: recorder(func(_ context.Context, _ visit.Batch, group []visit.Counts) error {
		most = max(most, len(group))
		for _, v := range group {
			if _, twice := bySite[v.Site]; twice {
				t.Error("twice:", v.Site)
			}
			bySite[v.Site] = v
		}
		return nil
	})})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	const sites = 2*groupMost + 7
	for i := range sites {
		v := NewSite(id.Site(fmt.Sprint("s", i)), &Owner{})
		l.Count(v, 200, 3, false)
		l.Count(v, 500, 0, false)
		l.Count(v, 0, 0, false) // the visitor left
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(bySite) != sites || most != groupMost {
		t.Errorf("%d sites in groups of at most %d", len(bySite), most)
	}
	if got := bySite["s7"]; numbers(got) != numbers(visit.Counts{Classes: [4]int64{1, 0, 0, 1}, Bytes: 3}) {
		t.Errorf("s7: %+v", got)
	}
}

// Counting during a collection loses nothing and counts nothing twice.
func TestConcurrently(t *testing.T) {
	t.Parallel()
	list := New(Config{})
	sites := []*Site{NewSite("a", &Owner{}), NewSite("b", &Owner{})}
	const workers, each = 8, 5000
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range each {
				list.Count(sites[i%2], 204, 2, true)
			}
		})
	}
	got := map[id.Site]visit.Counts{}
	take := func() {
		for _, v := range list.collect() {
			got[v.Site] = merge([]visit.Counts{got[v.Site]}, []visit.Counts{{Classes: v.Classes, Pages: v.Pages, Bytes: v.Bytes}})[0]
		}
	}
	counted := make(chan struct{})
	go func() { wg.Wait(); close(counted) }()
	for open := true; open; {
		select {
		case <-counted:
			open = false
		default:
		}
		take()
	}
	take()
	const n = workers * each / 2
	for _, site := range []id.Site{"a", "b"} {
		if numbers(got[site]) != numbers(visit.Counts{Classes: [4]int64{n}, Pages: n, Bytes: 2 * n}) {
			t.Errorf("%s: %+v", site, got[site])
		}
	}
	if len(list.list) > 0 {
		t.Error("the list is not empty")
	}
}

// The access log keeps a limited number of requests per site and in total. Requests above the limit are only counted.
func TestAccessLogBounds(t *testing.T) {
	t.Parallel()
	list := New(Config{})
	long := strings.Repeat("ä", 1000)
	var owner *Owner
	for s := range 40 {
		if s%4 == 0 {
			owner = &Owner{}
		}
		v := NewSite(id.Site(fmt.Sprint("s", s)), owner)
		for i := range 2 * siteLines {
			v.detail.addLine(&list.bounds, func() visit.Line { return visit.Line{Path: cut(long)} })
			v.detail.addTop(&list.bounds, visit.Missing, fmt.Sprint("/", i, long), 1)
			list.Count(v, 404, 0, false)
		}
	}
	var lines, omitted, names, hits int64
	for _, v := range list.collect() {
		if len(v.Lines) > siteLines || len(v.Names) > siteTops+1 {
			t.Fatalf("%d lines, %d names of one site", len(v.Lines), len(v.Names))
		}
		lines += int64(len(v.Lines))
		omitted += v.Omitted
		for top, n := range v.Names {
			if len(top.Name) > maxText {
				t.Fatal("a long name:", len(top.Name))
			}
			names++
			hits += n
		}
	}
	if lines != allLines || lines+omitted != 40*2*siteLines || hits != 40*2*siteLines || names > allTops+40 {
		t.Errorf("%d lines, %d omitted, %d names, %d hits", lines, omitted, names, hits)
	}
	if list.bounds.lines.Load() != 0 || list.bounds.tops.Load() != 0 {
		t.Error("collected entries still count")
	}
}

// network returns the network of an address, not the address.
func TestNetwork(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"203.0.113.77":         "203.0.113.0",
		"::ffff:203.0.113.77":  "203.0.113.0",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1::",
		"fe80::1%eth0":         "fe80::",
	} {
		if got := network(netip.MustParseAddr(in)); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// One owner's sites leave most of the access log's room to others, however many they are.
func TestAccessLogOfOneOwner(t *testing.T) {
	t.Parallel()
	list := New(Config{})
	greedy := &Owner{}
	line := func(v *Site) {
		v.detail.addLine(&list.bounds, func() visit.Line { return visit.Line{} })
		v.detail.addTop(&list.bounds, visit.Missing, fmt.Sprint("/", v.detail.lines.Load()), 1)
		list.Count(v, 404, 0, false)
	}
	for s := range 100 {
		v := NewSite(id.Site(fmt.Sprint("s", s)), greedy)
		for range siteLines {
			line(v)
		}
	}
	line(NewSite("other", &Owner{}))
	all := 0
	for _, v := range list.collect() {
		all += len(v.Lines)
		if v.Site == "other" && (len(v.Lines) != 1 || v.Omitted != 0) {
			t.Errorf("another owner's line is left out: %+v", v)
		}
	}
	if all != someLines+1 || greedy.lines.Load() != 0 || greedy.tops.Load() != 0 {
		t.Errorf("%d lines are kept, want %d; %d and %d count afterwards", all, someLines+1, greedy.lines.Load(), greedy.tops.Load())
	}
}

// A batch whose result is unknown is offered again unchanged, so that it can be recognized. Later counts go into
// batches of their own.
func TestRefusedBatchStaysItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := NewSite("a", &Owner{})
		var l *Counter
		added, offered := map[visit.Batch]string{}, 0
		total := int64(0)
		l = New(
			Config{
				Every: time.Second,
				Log:   slog.New(slog.DiscardHandler),
				Recorder: recorder(func(_ context.Context, b visit.Batch, group []visit.Counts) error {
					offered++
					text := ""
					for _, v := range group {
						text += string(v.Site) + numbers(v)
					}
					if was, again := added[b]; !again {
						added[b] = text
						for _, v := range group {
							total += v.Bytes
						}
					} else if was != text {
						t.Errorf("batch %d was %s and is %s", b.Number, was, text)
					}
					if offered <= 3 {
						l.Count(a, 200, 10, false) // while the batch is being recorded
						return errors.New("the answer was lost")
					}
					return nil
				}),
			},
		)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		l.Count(a, 200, 1, false)
		time.Sleep(time.Minute)
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if total != 31 || offered < 5 {
			t.Errorf("%d bytes counted in %d offers, want 31", total, offered)
		}
		for b := range added {
			if b.Counter == "" || b.Number < 1 {
				t.Errorf("batch %+v", b)
			}
		}
	})
}
