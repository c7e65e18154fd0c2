package fetch

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
)

// When too many fetches wait, the error says whether they are the owner's own or other owners'.
func TestFullPools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.New(fair.Config{Places: 2, Owner: 1, Waiting: 3, OwnerWaiting: 2})
		ctx, cancel := context.WithCancel(t.Context())
		for _, owner := range []id.Owner{"a", "a", "a", "b", "b"} {
			go take(ctx, p, Request{Owner: owner})
			synctest.Wait()
		}
		if _, err := take(ctx, p, Request{Owner: "a"}); !fault.Is(err, fault.Limited) || fault.As(err).RetryAfter == 0 {
			t.Errorf("one more than an owner may have waiting: %v, want Limited", err)
		}
		if _, err := take(ctx, p, Request{Owner: "c"}); !fault.Is(err, fault.Unavailable) || fault.As(err).RetryAfter == 0 {
			t.Errorf("one more than may wait: %v, want Unavailable", err)
		}
		cancel()
		synctest.Wait()
		if _, waiting := p.Held(); waiting != 0 {
			t.Errorf("%d wait whose context has ended", waiting)
		}
	})
}

// Sixty concurrent inspections start only as many gits as there are slots. One user's inspections use one slot, the
// rest wait or are refused with an error, and another user's inspection runs meanwhile.
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
			_, _, err := s.Branches(ctx, Request{
				Site:       id.Site(fmt.Sprint("look", i)),
				Repository: repo(t, "git.test/acme/slow"),
				Owner:      "mallory",
				Look:       true,
			})
			errs <- err
		}()
	}
	for range 60 - 1 - 3 {
		if err := <-errs; !fault.Is(err, fault.Limited) {
			t.Errorf("got %v, want Limited", err)
		}
	}
	tree, err := s.Fetch(t.Context(), Request{
		Site:       "anna",
		Repository: repo(t, "git.test/acme/site"),
		Branch:     "main",
		Owner:      "anna",
		Look:       true,
	})
	if err != nil {
		t.Fatalf("another user's look: %v", err)
	}
	if held, _ := s.looks.Held(); held != 2 {
		t.Errorf("%d places are taken, want one of each user until the tree is closed", held)
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
	if held, _ := s.looks.Held(); held != 0 {
		t.Errorf("%d places are taken at the end", held)
	}
}
