package app

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Who waits for a program that answers with server errors hears what it answers, once for
// each answer and not for each question, and goes live as soon as it is healthy.
func TestHealthSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want.HealthPath = "/ready"
		w.engine.status = 503
		var said []string
		done := make(chan error)
		go func() {
			release, err := w.apps.Start(t.Context(), "one", func(line string) { said = append(said, line) })
			if err == nil {
				release()
			}
			done <- err
		}()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want := []string{"The application is not healthy yet: it answers /ready with 503. It has 1m0s in all to become healthy."}
		if !slices.Equal(said, want) {
			t.Errorf("it said %q, want %q", said, want)
		}
		w.engine.last().answer(500)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want = append(want, "The application is not healthy yet: it answers /ready with 500. It has 1m0s in all to become healthy.")
		if !slices.Equal(said, want) {
			t.Errorf("after another answer it said %q, want %q", said, want)
		}
		w.engine.last().answer(404) // anything but a server error is healthy
		if err := <-done; err != nil || len(said) != 2 {
			t.Errorf("Start = %v, said %q", err, said)
		}
		if n := w.engine.starts(); n != 1 {
			t.Errorf("%d starts, want 1", n)
		}
	})
}
