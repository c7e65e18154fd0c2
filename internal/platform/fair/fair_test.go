package fair

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// asks makes each caller wait for a slot, in this order, and returns the order in which they got one. Each releases its
// slot before the next one gets it.
func asks(t *testing.T, p *Pool, who ...Who) (order []Who) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all, err := p.TakeN(t.Context(), Who{Owner: "first"}, p.c.Places)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex // guards order
		var wait sync.WaitGroup
		for _, w := range who {
			wait.Go(func() {
				release, err := p.TakeN(t.Context(), w, p.c.Places)
				if err != nil {
					t.Error(err)
					return
				}
				defer release()
				mu.Lock()
				defer mu.Unlock()
				order = append(order, w)
			})
			synctest.Wait()
		}
		all()
		wait.Wait()
	})
	return order
}

func TestTurns(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ asks, want string }{
		"in the order of asking":  {"a1x a1x b1x", "a1x b1x a1x"},
		"owners in turn":          {"a1x a2x a3x b1x b1x", "a1x b1x a2x b1x a3x"},
		"sites of an owner":       {"a1x a1x a1x a2x", "a1x a2x a1x a1x"},
		"visitors of a site":      {"a1x a1x a1x a1y a1z", "a1x a1y a1z a1x a1x"},
		"many sites are one user": {"a1x a2x a3x a4x b1x b1x", "a1x b1x a2x b1x a3x a4x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var who []Who
			for word := range strings.FieldsSeq(tt.asks) {
				who = append(who, Who{word[:1], word[:2], word[2:]})
			}
			var got []string
			for _, w := range asks(t, New(Config{Places: 4}), who...) {
				got = append(got, w.Site+w.Visitor)
			}
			if g := strings.Join(got, " "); g != tt.want {
				t.Errorf("turns were %s, want %s", g, tt.want)
			}
		})
	}
}

// The service's own work gets every second turn, however many owners wait.
func TestOwnTurns(t *testing.T) {
	t.Parallel()
	var got []string
	who := []Who{{Owner: "a"}, {Owner: "b"}, {Owner: "c"}, {}, {}}
	for _, w := range asks(t, New(Config{Places: 1, Own: true}), who...) {
		got = append(got, w.Owner)
	}
	if want := []string{"", "a", "", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("turns were %q, want %q", got, want)
	}
}

// An owner with much work gets its turns although many other owners always wait again right after their turns.
func TestNewcomers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Places: 1})
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		work := func(owner string, each func()) {
			for ctx.Err() == nil {
				release, err := p.Take(ctx, Who{Owner: owner})
				if err != nil {
					return
				}
				time.Sleep(time.Second) // fake time
				each()
				release()
			}
		}
		for _, owner := range []string{"a", "b", "c", "d"} {
			wait.Go(func() { work(owner, func() {}) })
		}
		served := 0
		for range 2 {
			wait.Go(func() { work("much", func() { served++ }) })
		}
		time.Sleep(100 * time.Second)
		cancel()
		wait.Wait()
		if served < 19 || served > 21 {
			t.Errorf("the new owner had %d of 100 turns, want 20", served)
		}
	})
}

func TestShares(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		c    Config
		held []Who
		ask  Who
		want bool
	}{
		"a free place":               {Config{Places: 2}, []Who{{Owner: "a"}}, Who{Owner: "a"}, true},
		"none is free":               {Config{Places: 1}, []Who{{Owner: "a"}}, Who{Owner: "b"}, false},
		"an owner's share":           {Config{Places: 4, Owner: 2}, []Who{{"a", "1", ""}, {"a", "2", ""}}, Who{"a", "3", ""}, false},
		"another owner's":            {Config{Places: 4, Owner: 2}, []Who{{"a", "1", ""}, {"a", "2", ""}}, Who{"b", "3", ""}, true},
		"a site's share":             {Config{Places: 4, Owner: 3, Site: 1}, []Who{{"a", "1", "x"}}, Who{"a", "1", "y"}, false},
		"another site's":             {Config{Places: 4, Owner: 3, Site: 1}, []Who{{"a", "1", "x"}}, Who{"a", "2", "x"}, true},
		"a visitor's share":          {Config{Places: 4, Visitor: 1}, []Who{{"a", "1", "x"}}, Who{"a", "1", "x"}, false},
		"another visitor's":          {Config{Places: 4, Visitor: 1}, []Who{{"a", "1", "x"}}, Who{"a", "1", "y"}, true},
		"the service has no share":   {Config{Places: 4, Owner: 1, Own: true}, []Who{{}, {}}, Who{}, true},
		"a tenant beside it has one": {Config{Places: 4, Owner: 1, Own: true}, []Who{{Owner: "a"}}, Who{Owner: "a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := New(tt.c)
			for _, w := range tt.held {
				if _, ok := p.Try(w); !ok {
					t.Fatalf("no place for %v", w)
				}
			}
			release, ok := p.Try(tt.ask)
			if ok != tt.want {
				t.Fatalf("Try(%v) reported %v, want %v", tt.ask, ok, tt.want)
			}
			if ok {
				release()
				release()
			}
			if held, _ := p.Held(); held != len(tt.held) {
				t.Errorf("%d are held afterwards, want %d", held, len(tt.held))
			}
		})
	}
}

// An owner at its limit waits, and others overtake it.
func TestPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Places: 2, Owner: 1})
		mine, _ := p.Try(Who{Owner: "a"})
		over := make(chan struct{})
		go func() {
			defer close(over)
			release, err := p.Take(t.Context(), Who{Owner: "a"})
			if err != nil {
				t.Error(err)
				return
			}
			release()
		}()
		synctest.Wait()
		release, err := p.Take(t.Context(), Who{Owner: "b"})
		if err != nil {
			t.Fatal(err)
		}
		release()
		if release, ok := p.Try(Who{Owner: "c"}); !ok {
			t.Error("the pool refuses another owner because one waits at its limit")
		} else {
			release()
		}
		select {
		case <-over:
			t.Error("an owner with a limit of one got two slots")
		default:
		}
		mine()
		<-over
	})
}

func TestFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Places: 1, Waiting: 3, OwnerWaiting: 2})
		release, _ := p.Try(Who{Owner: "z"})
		ctx, cancel := context.WithCancelCause(t.Context())
		wait := func(owner string) {
			go func() { _, _ = p.Take(ctx, Who{Owner: owner}) }()
			synctest.Wait()
		}
		wait("a")
		wait("a")
		if _, err := p.Take(ctx, Who{Owner: "a"}); !errors.Is(err, ErrFull) {
			t.Errorf("a third of one owner: %v, want ErrFull", err)
		}
		wait("b")
		if _, err := p.Take(ctx, Who{Owner: "c"}); !errors.Is(err, ErrFull) {
			t.Errorf("a fourth in all: %v, want ErrFull", err)
		}
		gone := errors.New("gone")
		cancel(gone)
		synctest.Wait()
		if held, waiting := p.Held(); held != 1 || waiting != 0 {
			t.Errorf("%d held and %d waiting, want 1 and 0", held, waiting)
		}
		if _, err := p.Take(ctx, Who{}); !errors.Is(err, gone) {
			t.Errorf("Take with an ended context: %v, want its cause", err)
		}
		release()
		if len(p.root.children) > 0 {
			t.Errorf("%d owners are remembered, want none", len(p.root.children))
		}
	})
}

// A request for many slots isn't overtaken forever by small ones, and one above a limit is refused.
func TestWeights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Places: 10, Owner: 8})
		if _, err := p.TakeN(t.Context(), Who{Owner: "a"}, 9); !errors.Is(err, ErrFull) {
			t.Errorf("beyond the bound: %v, want ErrFull", err)
		}
		light, _ := p.TryN(Who{Owner: "b"}, 4)
		var heavy func()
		go func() { heavy, _ = p.TakeN(t.Context(), Who{Owner: "a"}, 8) }()
		synctest.Wait()
		if _, ok := p.TryN(Who{Owner: "c"}, 1); ok {
			t.Error("a request for one slot was preferred to a larger one that waits")
		}
		light()
		synctest.Wait()
		if held, _ := p.Held(); held != 8 || heavy == nil {
			t.Fatalf("%d held, want the heavy 8", held)
		}
		heavy()
	})
}

// With random takes, waits, cancellations and releases, no limit is exceeded. At the end nothing is held, nobody waits
// and no state remains.
func TestRandom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := Config{Places: 7, Owner: 4, Site: 3, Visitor: 2, Own: true}
		p := New(c)
		var mu sync.Mutex // guards held
		held := map[string]int{}
		add := func(w Who, n int) {
			mu.Lock()
			defer mu.Unlock()
			keys := []string{"all"}
			if w.Owner != "" {
				keys = append(keys, "o"+w.Owner, "s"+w.Owner+w.Site, "v"+w.Owner+w.Site+w.Visitor)
			}
			for _, k := range keys {
				held[k] += n
				if most := map[byte]int{'a': c.Places, 'o': c.Owner, 's': c.Site, 'v': c.Visitor}[k[0]]; held[k] > most {
					t.Errorf("%s holds %d of %d", k, held[k], most)
				}
			}
		}
		var wait sync.WaitGroup
		for i := range 2000 {
			wait.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(i)))
				w := Who{[]string{"", "a", "b", "c"}[r.IntN(4)], fmt.Sprint(r.IntN(3)), fmt.Sprint(r.IntN(3))}
				weight := 1 + r.IntN(2)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if r.IntN(4) == 0 {
					go cancel()
				}
				release, err := p.TakeN(ctx, w, weight)
				if err != nil {
					return
				}
				add(w, weight)
				for range r.IntN(3) {
					if also, ok := p.Try(w); ok {
						add(w, 1)
						add(w, -1)
						also()
					}
				}
				add(w, -weight)
				release()
			})
		}
		wait.Wait()
		if held, waiting := p.Held(); held != 0 || waiting != 0 || len(p.root.children) != 0 || len(p.root.queue) != 0 ||
			p.root.waiting != 0 {
			t.Errorf("%d held, %d waiting, %d owners and %d in the queue, want none", held, waiting,
				len(p.root.children), len(p.root.queue))
		}
	})
}

func BenchmarkTry(b *testing.B) {
	p := New(Config{Places: 100, Owner: 50})
	w := Who{"owner", "site", "203.0.113.7"}
	b.ReportAllocs()
	for b.Loop() {
		release, _ := p.Try(w)
		release()
	}
}
