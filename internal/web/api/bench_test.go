package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api"
)

// BenchmarkListSites measures a full page of a long list on the server, without the network.
func BenchmarkListSites(b *testing.B) {
	w := newWorld(b, func(c *api.Config) { c.RateLimit = 1 << 30 })
	u, key := w.user("a@example.test")
	err := w.db.Write(b.Context(), func(tx *db.Tx) error {
		for i := range 1000 {
			s, err := w.c.Sites.CreateTx(b.Context(), tx, w.owner(u), site.NewSite{
				Name:       fmt.Sprintf("Site %d", i),
				Type:       "static",
				Repository: "git.test/acme/site",
				Branch:     "main",
			})
			if err != nil {
				return err
			}
			if _, err := w.c.Sites.ActivateTx(b.Context(), tx, s.ID, id.Deployment(db.NewID("dep")), "release", "static"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	h := api.New(w.c).Handler()
	for _, query := range []string{"?limit=1", "", "?status=active&limit=100", "?search=site"} {
		b.Run(query, func(b *testing.B) {
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				r := httptest.NewRequest(http.MethodGet, "/api/v1/sites"+query, nil)
				r.Header.Set("Authorization", "Bearer "+key)
				rec := httptest.NewRecorder()
				if h.ServeHTTP(rec, r); rec.Code != 200 {
					b.Fatal(rec.Code, rec.Body)
				}
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpu returns the CPU time of this process, which other processes hardly affect, unlike elapsed time.
func cpu(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
