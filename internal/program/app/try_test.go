package app

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/build/buildlog"
	"slipway/internal/platform/fault"
)

// A program on trial must answer, end and leave nothing behind. If it does not answer, the error must give the reason
// and its last output, without its secrets.
func TestTry(t *testing.T) {
	for name, tt := range map[string]struct {
		engine   *fakeEngine
		says     string
		most     int
		status   int
		code     string
		sentence string
	}{
		"answers":         {status: 200},
		"redirects":       {engine: &fakeEngine{status: 302}, status: 302},
		"comes up slowly": {engine: &fakeEngine{boot: 40 * time.Second}, status: 200},
		"is closed":       {engine: &fakeEngine{status: 503}, status: 503},
		"is broken": {
			engine:   &fakeEngine{status: 500},
			says:     "PHP Fatal error: hunter2",
			code:     "application_unhealthy",
			sentence: "It answers / with 500: it printed: PHP Fatal error: [secret]",
		},
		"never listens": {engine: &fakeEngine{boot: -1}, code: "application_unhealthy", sentence: "It does not respond to / after 1m0s"},
		"ends": {
			engine:   &fakeEngine{boot: -1, dieIn: time.Second},
			says:     "cannot find module",
			code:     "application_crashed",
			sentence: "The application exited: exit code 1: it printed: cannot find module",
		},
		"can't start": {engine: &fakeEngine{refuse: errors.New("no sandbox")}, code: ""},
		"has no room": {most: 1, code: "too_many_programs", sentence: "Too many applications are running on this server"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if e := tt.engine; e != nil {
					w.engine.refuse, w.engine.boot, w.engine.status, w.engine.dieIn = e.refuse, e.boot, e.status, e.dieIn
				}
				if tt.most > 0 {
					w.apps.c.Most = tt.most
					w.acquire("one").Release()
				}
				want := w.want
				want.Site, want.Secrets = "trial", buildlog.NewRedactor([]string{"hunter2"})
				if tt.says != "" {
					go func() { // runs as soon as the program has started
						for w.engine.starts() == 0 {
							time.Sleep(time.Millisecond)
						}
						w.engine.last().spec.Output("stderr", tt.says)
					}()
				}
				before := w.apps.up.Load()
				status, err := w.apps.Try(t.Context(), want)
				synctest.Wait()
				if status != tt.status || (err == nil) != (tt.status != 0) || code(err) != tt.code {
					t.Errorf("status %d, %v", status, err)
				}
				if f := fault.As(err); f != nil && tt.sentence != "" && strings.TrimSuffix(f.Message+": "+f.Details, ": ") != tt.sentence {
					t.Errorf("the error is %q, want %q", f.Message+": "+f.Details, tt.sentence)
				}
				if n := w.apps.up.Load(); n != before {
					t.Errorf("%d programs count as running, before it were %d", n, before)
				}
				for _, p := range w.engine.started {
					if p.spec.Site == "trial" && p.running() {
						t.Error("it still runs")
					}
				}
				if len(w.said()) > 0 {
					t.Errorf("the site's log has %q", w.said())
				}
			})
		})
	}
	var none Apps
	if _, err := none.Try(t.Context(), Wanted{}); code(err) != "no_runtime" {
		t.Errorf("without an engine: %v", err)
	}
}
