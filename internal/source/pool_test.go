package source

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"slipway/internal/fault"
)

func TestPoolIsFairAndBounded(t *testing.T) {
	t.Parallel()
	p := newPool(3, 1, 2, 4)
	take := func(owner string) (func(), error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		return p.take(ctx, owner)
	}
	first, err := take("a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	wait := func(owner string) {
		waiting.Go(func() {
			if done, err := p.take(ctx, owner); err == nil {
				done()
			}
		})
	}
	settle := func(n int) {
		for {
			p.mu.Lock()
			have := len(p.waiting)
			p.mu.Unlock()
			if have == n {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	wait("a")
	wait("a")
	settle(2)
	if _, err := take("a"); !fault.Is(err, fault.Limited) || fault.As(err).RetryAfter == 0 {
		t.Errorf("a's fourth: %v, want Limited", err)
	}
	second, err := take("b") // nobody else's queue is in the way
	if err != nil {
		t.Fatal(err)
	}
	third, err := take("c")
	if err != nil {
		t.Fatal(err)
	}
	wait("b")
	wait("c")
	settle(4)
	if _, err := take("d"); !fault.Is(err, fault.Unavailable) || fault.As(err).RetryAfter == 0 {
		t.Errorf("one more than may wait: %v, want Unavailable", err)
	}
	cancel()
	waiting.Wait()
	first()
	first() // once more does nothing
	second()
	third()
	if p.free != 3 || len(p.running) != 0 || len(p.waiting) != 0 {
		t.Errorf("at the end: %d free, running %v, %d waiting", p.free, p.running, len(p.waiting))
	}
}

// Sixty looks at once start no more gits than there are places; one user's take one, the
// rest wait or are refused in words, and another user's goes on meanwhile.
func TestLooksAreLimited(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"index.html": "x"})
	s := open(t, h, nil)
	var mu sync.Mutex
	active, most := map[string]int{}, 0
	hold := make(chan struct{})
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/acme/slow.git/info/refs" {
			h.pass(w, r)
			return
		}
		mu.Lock()
		active["slow"]++
		most = max(most, active["slow"])
		mu.Unlock()
		select {
		case <-hold:
		case <-r.Context().Done():
		}
		mu.Lock()
		active["slow"]--
		mu.Unlock()
		http.NotFound(w, r)
	})
	h.intercept.Store(&slow)
	errs := make(chan error, 60)
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 60 {
		go func() {
			_, _, err := s.Branches(ctx, Request{Site: fmt.Sprint("look", i), Repository: repo(t, "git.test/acme/slow"), Owner: "mallory", Look: true})
			errs <- err
		}()
	}
	for range 60 - 1 - 3 {
		if err := <-errs; !fault.Is(err, fault.Limited) {
			t.Errorf("got %v, want Limited", err)
		}
	}
	tree, err := s.Fetch(t.Context(), Request{Site: "anna", Repository: repo(t, "git.test/acme/site"), Branch: "main", Owner: "anna", Look: true})
	if err != nil {
		t.Fatalf("another user's look: %v", err)
	}
	inUse := func() (places, free int) {
		s.looks.mu.Lock()
		defer s.looks.mu.Unlock()
		return len(s.looks.running), s.looks.free
	}
	if n, _ := inUse(); n != 2 {
		t.Errorf("%d users have places, want two until the tree is closed", n)
	}
	tree.Close()
	close(hold)
	cancel()
	for range 4 {
		<-errs
	}
	if most > 1 {
		t.Errorf("%d of one user's looks reached the host at once", most)
	}
	if _, free := inUse(); free != 3 {
		t.Errorf("%d places are free at the end", free)
	}
}
