package app

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/program/scale"
	"slipway/internal/program/transport"
)

// A program that no longer answers must be ended if requests wait for it, or in any case if the settings have a health
// path. Its log must say why, and the next request must get a new program. A program that answers, one that is
// starting, and PHP must not be ended.
func TestHungProgramsAreEnded(t *testing.T) {
	for name, tt := range map[string]struct {
		path    string        // the path of the health check
		waits   bool          // whether a request waits
		hang    bool          // whether the program stops answering
		status  int           // the status with which it answers
		fresh   bool          // whether it has never answered
		php     bool          // whether its runtime is PHP
		after   time.Duration // it must be ended within this time
		says    string
		healthy time.Duration // the time that it has to become healthy
	}{
		"requests wait":                     {waits: true, hang: true, after: time.Minute, says: "does not answer / within 10s, 3 times in a row"},
		"nobody waits":                      {hang: true},
		"nobody waits, but there is a path": {path: "/up", hang: true, after: time.Minute, says: "does not answer /up within 10s"},
		"a path with errors":                {path: "/up", status: 503, after: time.Minute, says: "answers /up with 503"},
		"errors without a path":             {waits: true, status: 500},
		"a long request":                    {waits: true},
		"on its way up":                     {path: "/up", status: 503, fresh: true, healthy: 10 * time.Minute},
		"PHP":                               {waits: true, hang: true, php: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.want.HealthPath, w.want.Sleep = tt.path, time.Hour
				if tt.healthy > 0 {
					w.want.Health = tt.healthy
				}
				if tt.php {
					w.want.PHP = &transport.PHP{}
				}
				e := w.acquire("one")
				if !tt.fresh && !tt.php {
					e.Answered(http.StatusOK, 0, 0)
				}
				if !tt.waits {
					e.Release()
				}
				x := w.engine.last()
				if tt.status > 0 {
					x.answer(tt.status)
				}
				if tt.hang {
					x.hang()
				}
				w.pass(3 * time.Minute)
				if ended := !x.running(); ended != (tt.after > 0) {
					t.Fatalf("the program was ended: %v; %q", ended, w.said())
				}
				if tt.after == 0 {
					return
				}
				if said := w.said(); !slices.ContainsFunc(said, func(line string) bool { return strings.Contains(line, tt.says) }) {
					t.Errorf("the log says %q, want %q", said, tt.says)
				}
				e = w.acquire("one")
				defer e.Release()
				if w.engine.starts() != 2 || !w.engine.last().running() {
					t.Errorf("%d starts", w.engine.starts())
				}
				resp, err := e.Transport.RoundTrip(httptest.NewRequest(http.MethodGet, "http://app.test/", nil))
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("the next request: %v", err)
				}
				resp.Body.Close()
			})
		})
	}
}

// If one of several instances no longer answers, only that one must be ended.
func TestHungInstancesAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want.HealthPath, w.want.Sleep, w.want.Instances = "/up", time.Hour, scale.Range{Min: 2, Max: 2}
		w.acquire("one").Release()
		w.pass(30 * time.Second)
		if n := w.engine.starts(); n != 2 {
			t.Fatalf("%d instances", n)
		}
		w.engine.last().hang()
		w.pass(2 * time.Minute)
		w.engine.mu.Lock()
		first, second := w.engine.started[0], w.engine.started[1]
		w.engine.mu.Unlock()
		if !first.running() || second.running() || w.engine.starts() < 3 || !w.engine.last().running() {
			t.Errorf("%v, %v, %d starts: %q", first.running(), second.running(), w.engine.starts(), w.said())
		}
	})
}
